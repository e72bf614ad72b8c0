#include "python_hooks/walk/walk.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/portable.h"
#include "python_hooks/walk/walk_memo.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

constexpr std::uint32_t kMostValues = 1'000'000;
constexpr int kDeepest = 200;
constexpr std::size_t kMostKept = 1 << 18;      // bytes of the form of a walk whose memory is kept for the next
constexpr long long kMostPortable = 1LL << 40;  // an int of a state, for it to count in other processes

std::uint64_t g_walks = 0;
Walk* g_kept = nullptr;  // has the memory of the last walk of arguments
// Where the tensors lie that the last replay made. Never where the last walk found some: those are alive until these
// are made. With the GIL.
const void* g_expected[Walk::kMostAhead];
std::size_t g_expected_count = 0;

}  // namespace

void Walk::expect(const std::vector<Object*>& tensors) noexcept {
  g_expected_count = 0;
  torch::TensorView view;
  for (Object* tensor : tensors) {
    if (tensor == nullptr || !torch::view_tensor(tensor, view)) continue;
    const torch::TensorPlaces places = torch::places_of_tensor(view);
    if (g_expected_count + 1 + std::size(places.at) > kMostAhead) return;
    g_expected[g_expected_count++] = tensor;
    for (const void* place : places.at) g_expected[g_expected_count++] = place;
  }
}

Walk::Walk(bool keep_addresses) noexcept : keep_addresses_(keep_addresses) {
  if (keep_addresses) return;
  number_ = ++g_walks;
  if (g_kept == nullptr) return;
  exchange_memory(*g_kept);
  seen_.fetch();
  storages_.fetch();
  // Only asked for: an address that is no more does no harm.
  for (std::size_t i = 0; i < g_expected_count; ++i) __builtin_prefetch(g_expected[i]);
  for (const void* place : touched_before_) __builtin_prefetch(place);
}

Walk Walk::portable(bool keep_addresses) noexcept {
  Walk walk = unkept();
  walk.keep_addresses_ = keep_addresses;
  walk.portable_ = true;
  return walk;
}

Walk Walk::unkept() noexcept {
  Walk walk(true);
  walk.keep_addresses_ = false;
  return walk;
}

Walk::~Walk() {
  if (keep_addresses_ || portable_ || bytes_.capacity() == 0 || bytes_.capacity() > kMostKept) return;
  if (g_kept == nullptr) g_kept = new (std::nothrow) Walk(true);
  if (g_kept == nullptr) return;
  clear();
  exchange_memory(*g_kept);
}

void Walk::exchange_memory(Walk& other) noexcept {
  bytes_.swap(other.bytes_);
  tensors_.swap(other.tensors_);
  extents_.swap(other.extents_);
  ascending_.swap(other.ascending_);
  objects_.swap(other.objects_);
  storage_extents_.swap(other.storage_extents_);
  std::swap(seen_, other.seen_);
  std::swap(storages_, other.storages_);
  std::swap(dicts_, other.dicts_);
  attribute_dicts_.swap(other.attribute_dicts_);
  touched_.swap(other.touched_);
  touched_before_.swap(other.touched_before_);
}

bool Walk::extents_are_apart() {
  if (extents_.size() < 2) return true;
  ascending_ = extents_;
  std::sort(ascending_.begin(), ascending_.end(),
            [](const StorageExtent& a, const StorageExtent& b) { return a.address < b.address; });
  for (std::size_t i = 1; i < ascending_.size(); ++i) {
    if (ascending_[i].address - ascending_[i - 1].address >= ascending_[i - 1].bytes) continue;
    refusal_ = refusal::make(refusal::storages_overlap);
    return false;
  }
  return true;
}

bool Walk::add_shallow(Object* root, const char* name) noexcept { return add(root, name, true); }

bool Walk::add_without_contents(Object* root, const char* name) noexcept {
  contents_ = false;
  const bool added = add(root, name, false);
  contents_ = true;
  return added;
}

bool Walk::add(Object* root, const char* name, bool shallow) noexcept {
  if (incomplete_) return false;
  if (!check_objects()) {
    refusal_ = refusal::make(refusal::unknown_layout);
    return false;
  }
  const KeepException keep;
  const NoCollection no_collection;
  if (watch_ != nullptr) ask_dictionaries();
  Path path;
  path.text = name;
  try {
    const bool remembered = memo_ != nullptr && memo_->root_ == root && !shallow && contents_;
    const bool recorded = remembered && memo_->records(*this) && !memo_->kept_;
    if (remembered && !memo_->records(*this) && memo_->give(*this)) return true;
    if (recorded) memo_->enter();
    const std::uint32_t before = values_;
    Walker walker(*this);
    const bool taken = shallow ? walker.shallow(root, path) : walker.value(root, path);
    walker.flush();
    note_root(root, values_ - before);
    if (recorded) memo_->leave(taken);
    return taken;
  } catch (const std::bad_alloc&) {
    refusal_ = {};  // no memory for words either
    incomplete_ = true;
    return false;
  }
}

void Walk::note_root(Object* root, std::uint32_t values) noexcept {
  if (values <= largest_values_) return;
  largest_root_ = root;
  largest_values_ = values;
}

void Walk::add_bytes(const void* data, std::size_t size) noexcept {
  try {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  } catch (const std::bad_alloc&) {
    incomplete_ = true;
  }
}

void Walk::add_numbers(const std::int64_t* numbers, std::size_t count) noexcept {
  try {
    for (std::size_t i = 0; notes_numbers_ && i < count; ++i)
      number_places_.push_back(bytes_.size() + i * sizeof *numbers);
  } catch (const std::bad_alloc&) {
    incomplete_ = true;
  }
  add_bytes(numbers, count * sizeof *numbers);
}

std::vector<std::uint8_t> Walk::without_numbers(std::vector<std::int64_t>& numbers) const {
  std::vector<std::uint8_t> rest = bytes_;
  for (const std::size_t place : number_places_) {
    std::int64_t number = 0;
    std::memcpy(&number, rest.data() + place, sizeof number);
    numbers.push_back(number);
    std::memset(rest.data() + place, 0, sizeof number);
  }
  return rest;
}

void Walk::clear() noexcept {
  number_ = ++g_walks;
  bytes_.clear();
  tensors_.clear();
  extents_.clear();
  devices_.clear();
  objects_.clear();
  refusal_ = {};
  seen_.clear();
  storages_.clear();
  dicts_.clear();
  attribute_dicts_.clear();
  storage_extents_.clear();
  touched_.swap(touched_before_);
  touched_.clear();
  values_ = largest_values_ = 0;
  largest_root_ = nullptr;
  incomplete_ = notes_numbers_ = false;
  number_places_.clear();
  compared_ = 0;
  difference_.clear();
}

void Walker::put_much(const void* data, std::size_t size) {
  flush();
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  walk_.bytes_.insert(walk_.bytes_.end(), bytes, bytes + size);
}

void Walker::note_numbers(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    walk_.number_places_.push_back(walk_.bytes_.size() + ready_bytes_ + i * sizeof(std::int64_t));
  }
}

void Walker::put_identity(Object* object) { put(walk_.portable_ ? portable_name(object) : identity_of(object)); }

void Walker::put_pointer(Object* object) {
  if (walk_.portable_) return put(portable_name(object));
  put_address(object);
}

// What C code is called in place of where it lies.
void Walker::put_c_name(const char* name, const void* address) {
  if (!walk_.portable_) return put_address(address);
  put(name, std::strlen(name) + 1);
}

void Walker::flush() {
  walk_.bytes_.insert(walk_.bytes_.end(), ready_, ready_ + ready_bytes_);
  ready_bytes_ = 0;
}

// What is read of a class whenever it is come to.
void Walker::touch_type(const TypeInfo& info) {
  info.walk = walk_.number_;
  touch(&info);
  touch(&info, 64);
  if (info.reference != nullptr) touch(info.reference);
  for (const std::size_t offset : type::kOften) touch(info.type, offset);
}

void Walker::touch_dict(Object* dict) {
  touch(dict);
  touch(field<const void*>(dict, 32));  // its table
  if (has_split_values(dict)) touch(field<const void*>(dict, 40));
}

bool Walker::put_text(Object* text) {
  Text parts;
  const bool readable = text_of(text, parts);
  if (!readable) parts = {};
  put(static_cast<std::uint32_t>(parts.characters) << 3 | parts.width);
  put(parts.data, parts.characters * parts.width);
  return readable;
}

void Walker::put_name(Object* text) {
  if (text == nullptr || !is_text(text)) return put(std::uint32_t{0});
  put_text(text);
}

bool Walker::again(Object* object) {
  bool added = false;
  const std::uint32_t number = walk_.seen_.number_of(object, added);
  if (!added) {
    if (watch_ != nullptr && walk_.memo_ != nullptr) walk_.memo_->met_again(number, object);
    put(Mark::kBack);
    put(number);
    return true;
  }
  walk_.objects_.push_back(object);
  touch(object);
  return false;
}

// The innermost value whose bytes differ is named: it is the first that ends behind the difference.
void Walker::compare(const Path& path) {
  flush();
  const std::vector<std::uint8_t>& bytes = walk_.bytes_;
  const std::vector<std::uint8_t>& expected = *walk_.expected_;
  const std::size_t begin = walk_.compared_, end = bytes.size();
  walk_.compared_ = end;
  if (!walk_.difference_.empty() || begin >= end) return;
  if (end <= expected.size() && std::memcmp(&bytes[begin], &expected[begin], end - begin) == 0) return;
  walk_.difference_ = render(path);
}

// Of the last columns of kinds.def.
#define GRAPE_WRITE(write, ...) write
#define GRAPE_PARTS(write, ...) \
  { __VA_ARGS__ }

const char* const Walker::kParts[][kMostParts + 1] = {
#define GRAPE_KIND(name, type, traits, ...) GRAPE_PARTS(__VA_ARGS__, nullptr),
#include "python_hooks/walk/kinds.def"
#undef GRAPE_KIND
};

__attribute__((always_inline)) inline bool Walker::content(Object* object, Kind kind, const Path& path) {
  put(kind);
  switch (kind) {
#define GRAPE_KIND(name, type, traits, ...) \
  case Kind::k##name:                       \
    return GRAPE_WRITE(__VA_ARGS__, )(object, kind, path);
#include "python_hooks/walk/kinds.def"
#undef GRAPE_KIND
  }
  return false;
}

bool Walker::value(Object* object, const Path& path) {
  if (++walk_.values_ > kMostValues) return refuse(refusal::too_many_objects, path);
  if (depth_ >= kDeepest) return refuse(refusal::too_many_levels, path);
  if (walk_.portable_ && type_of(object) == g_api.PyCode_Type) {
    put_identity(object);
    return true;
  }
  const TypeInfo* info = type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  if (info->walk != walk_.number_ && watch_ == nullptr) touch_type(*info);
  const Kind kind = info->kind;
  const bool in_python = info->made_in_python && kind != Kind::kModule && kind != Kind::kOpaque;
  ++depth_;
  bool taken = (in_python || is(kind, kCounted)) && again(object);
  if (!taken && (!in_python || instance(object, *info, path))) taken = content(object, kind, path);
  --depth_;
  if (walk_.expected_ != nullptr && taken) compare(path);
  return taken;
}

bool Walker::opaque(Object* object, Kind, const Path& path) {
  if (torch::is_hashed_generator(object)) return shallow_leaf(object);
  return refuse(refusal::opaque, path, full_type_name(type_of(object)));
}

bool Walker::nothing(Object*, Kind, const Path&) { return true; }

bool Walker::boolean(Object* object, Kind, const Path&) {
  put(object == g_api._Py_TrueStruct);
  return true;
}

bool Walker::integer(Object* number, Kind, const Path&) {
  int overflow = 0;
  const long long value = g_api.PyLong_AsLongLongAndOverflow(number, &overflow);
  const bool large = overflow != 0 || value >= kMostPortable || value <= -kMostPortable;
  // What a library notes of an object's hash or address is another number in each process.
  const bool left_out = large && walk_.portable_ && walk_.keep_addresses_;
  put(left_out || overflow != 0);
  if (left_out) return true;
  if (overflow == 0) {
    const std::int64_t plain = value;
    put_numbers(&plain, 1);
    return true;
  }
  const Reference digits(g_api.PyNumber_ToBase(number, 16));
  if (!digits) throw std::bad_alloc();
  put_text(digits.get());
  return true;
}

bool Walker::real(Object* number, Kind, const Path&) {
  put(float_bits(number));
  return true;
}

bool Walker::complex(Object* number, Kind, const Path&) {
  put(float_bits(number));
  put(imaginary_bits(number));
  return true;
}

bool Walker::text(Object* text, Kind, const Path& path) { return put_text(text) || refuse(refusal::old_text, path); }

bool Walker::bytes(Object* bytes, Kind, const Path&) {
  put(bytes_size(bytes));
  put(bytes_data(bytes), bytes_size(bytes));
  return true;
}

bool Walker::buffer(Object* object, Kind, const Path& path) {
  Buffer view{};
  if (g_api.PyObject_GetBuffer(object, &view, 0) != 0) {
    g_api.PyErr_Clear();
    return refuse(refusal::opaque, path, full_type_name(type_of(object)));
  }
  put(static_cast<std::size_t>(view.bytes));
  put(view.data, static_cast<std::size_t>(view.bytes));
  g_api.PyBuffer_Release(&view);
  return true;
}

bool Walker::constant(Object* constant, Kind, const Path&) {
  put_pointer(constant);
  return true;
}

bool Walker::device(Object* device, Kind, const Path&) {
  touch(device);
  put(torch::device_value(device));
  return true;
}

bool Walker::parts(Object* object, Kind kind, const Path& path) {
  const char* const* const names = kParts[static_cast<std::size_t>(kind)];
  for (std::size_t i = 0; names[i] != nullptr; ++i) {
    const std::size_t at = kHead + i * sizeof(void*);
    if (watch_ != nullptr) watch_->reference(object, at);
    const Path part = names[i] == kItem ? path.item(i) : names[i] == kSame ? path : path.attribute(names[i]);
    if (!optional(field<Object*>(object, at), part)) return false;
  }
  return true;
}

std::string other_object(const Walk& before, const Walk& now) {
  const auto other = std::mismatch(now.objects().begin(), now.objects().end(), before.objects().begin()).first;
  return std::string("an object was replaced by an equal one (") + type::name(type_of(*other)) + ")";
}

}  // namespace grape::python::walk
