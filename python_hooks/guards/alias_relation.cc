#include "python_hooks/guards/alias_relation.h"

#include <algorithm>
#include <new>

namespace grape::python::guards {
void AliasRelation::clear() noexcept {
  objects_.clear();
  owners_.clear();
  extents_.clear();
  reaches_.clear();
  object_count_ = 0;
}

void AliasRelation::add(const walk::Walk& state) {
  for (Object* object : state.objects()) {
    // One that several walks met keeps the number of the last: the same each time.
    if (!objects_.put(AddressKey{object}, object_count_++)) throw std::bad_alloc();
  }
  for (const walk::AttributeDict& known : state.attribute_dicts()) {
    const bool put = objects_.put(AddressKey{known.dict}, object_count_++) &&
                     owners_.put(AddressKey{known.dict}, state.objects()[known.object]);
    if (!put) throw std::bad_alloc();
  }
  for (const walk::StorageExtent& extent : state.extents()) {
    if (extent.bytes == 0) continue;
    extents_.push_back({extent.address, extent.address + extent.bytes, extents_.size()});
  }
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  reaches_.clear();
  std::uint64_t reach = 0;
  for (const Extent& extent : extents_) reaches_.push_back(reach = std::max(reach, extent.end));
}

void AliasRelation::relate(const walk::Walk& arguments, std::vector<std::uint64_t>& out, bool by_address) const {
  write_objects(arguments.objects(), by_address, out);
  write_dicts(arguments, by_address, out);
  out.push_back(~std::uint64_t{0});
  write_extents(arguments.extents(), by_address, out);
}

void AliasRelation::write_objects(const std::vector<Object*>& objects, bool by_address,
                                  std::vector<std::uint64_t>& out) const {
  constexpr std::size_t kAhead = 32;  // look-ups that are asked for ahead
  constexpr std::size_t kLine = 64 / sizeof(std::uint64_t);
  const std::size_t count = objects.size();
  for (std::size_t i = 0; i < std::min(kAhead, count); ++i) objects_.fetch(AddressKey{objects[i]});
  // They are searched right after this.
  for (std::size_t i = 0; i < reaches_.size(); i += kLine) __builtin_prefetch(&reaches_[i]);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) objects_.fetch(AddressKey{objects[i + kAhead]});
    const std::uint32_t* known = objects_.find(AddressKey{objects[i]});
    if (known == nullptr) continue;
    out.push_back(i);
    out.push_back(by_address ? reinterpret_cast<std::uint64_t>(objects[i]) : *known);
  }
}

void AliasRelation::write_dicts(const walk::Walk& arguments, bool by_address, std::vector<std::uint64_t>& out) const {
  for (const walk::AttributeDict& argument : arguments.attribute_dicts()) {
    const std::uint32_t* known = objects_.find(AddressKey{argument.dict});
    if (known == nullptr) continue;
    // That the object is the same one was written, and who else refers to its attributes is nobody's business.
    const Object* const* owner = owners_.find(AddressKey{argument.dict});
    if (owner != nullptr && *owner == arguments.objects()[argument.object]) continue;
    out.push_back((std::uint64_t{argument.object} + 1) << 32);  // no object's index
    out.push_back(by_address ? reinterpret_cast<std::uint64_t>(argument.dict) : *known);
  }
}

void AliasRelation::write_extents(const std::vector<walk::StorageExtent>& extents, bool by_address,
                                  std::vector<std::uint64_t>& out) const {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::uint64_t begin = extents[i].address, end = begin + extents[i].bytes;
    const auto first = std::upper_bound(reaches_.begin(), reaches_.end(), begin);
    for (auto known = extents_.begin() + (first - reaches_.begin()); known != extents_.end() && known->begin < end;
         ++known) {
      if (known->end <= begin) continue;
      out.insert(out.end(), {i, by_address ? known->begin : known->number, begin - known->begin});
    }
  }
}

}  // namespace grape::python::guards
