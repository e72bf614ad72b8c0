#include "python_hooks/state/sharing.h"

#include <algorithm>
#include <new>

namespace grape::python::state {

void Sharing::clear() noexcept {
  objects_.clear();
  extents_.clear();
  object_count_ = 0;
}

void Sharing::add(const Walk& state) {
  for (Object* object : state.objects()) {
    // One that several walks met keeps the number of the last: the same each time.
    if (!objects_.put(AddressKey{object}, object_count_++)) throw std::bad_alloc();
  }
  for (const StorageExtent& extent : state.extents()) {
    if (extent.bytes == 0) continue;
    extents_.push_back({extent.address, extent.address + extent.bytes, 0, static_cast<std::uint32_t>(extents_.size())});
  }
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::uint64_t reach = 0;
  for (Extent& extent : extents_) extent.reach = reach = std::max(reach, extent.end);
}

void Sharing::write(const Walk& arguments, bool by_address, std::vector<std::uint64_t>& out) const {
  const std::vector<Object*>& objects = arguments.objects();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::uint32_t* known = objects_.find(AddressKey{objects[i]});
    if (known == nullptr) continue;
    out.push_back(i);
    out.push_back(by_address ? reinterpret_cast<std::uint64_t>(objects[i]) : *known);
  }
  out.push_back(~std::uint64_t{0});
  const std::vector<StorageExtent>& extents = arguments.extents();
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::uint64_t begin = extents[i].address, end = begin + extents[i].bytes;
    auto known = std::upper_bound(extents_.begin(), extents_.end(), begin,
                                  [](std::uint64_t address, const Extent& extent) { return address < extent.reach; });
    for (; known != extents_.end() && known->begin < end; ++known) {
      if (known->end <= begin) continue;
      out.insert(out.end(), {i, by_address ? known->begin : known->number, begin - known->begin});
    }
  }
}

}  // namespace grape::python::state
