#include "shim/record/api_table.h"

#include <algorithm>
#include <cstring>

namespace grape::record {
namespace {

using trace::ApiClass;

constexpr std::uint64_t kNonBlocking = 1;      // CU_STREAM_NON_BLOCKING, CUstream_flags
constexpr std::uint64_t kLegacyHandle = 1;     // CU_STREAM_LEGACY
constexpr std::uint64_t kPerThreadHandle = 2;  // CU_STREAM_PER_THREAD
constexpr std::uint64_t kHostMemory = 1;       // CU_MEMORYTYPE_HOST, CUmemorytype
constexpr std::uint64_t kUnifiedMemory = 4;    // CU_MEMORYTYPE_UNIFIED

// CUDA_MEMCPY2D_v2 and CUDA_MEMCPY3D_v2, in 8-byte words.
struct CopyStruct {
  std::size_t words, source_type, destination_type, width, height, depth;  // depth 0: none
};
constexpr CopyStruct kCopy2D = {16, 2, 9, 14, 15, 0};
constexpr CopyStruct kCopy3D = {25, 4, 15, 22, 23, 24};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void note_index(ApiLayout& layout, const std::string& name, int index) {
  const struct {
    const char* name;
    int& index;
  } known[] = {{"stream", layout.stream}, {"event", layout.event}, {"exec", layout.exec},     {"bytes", layout.bytes},
               {"count", layout.count},   {"width", layout.width}, {"height", layout.height}, {"dst", layout.dst},
               {"src", layout.src},       {"value", layout.value}, {"flags", layout.flags},   {"ptr", layout.ptr},
               {"copy", layout.copy}};
  for (const auto& entry : known) {
    if (name == entry.name && entry.index < 0) entry.index = index;
  }
}

ApiLayout parse(const trace::ApiInfo& info) {
  ApiLayout layout;
  layout.symbol = info.symbol;
  layout.api_class = info.api_class;
  layout.per_thread = ends_with(info.symbol, "_ptsz") || ends_with(info.symbol, "_ptds");
  layout.destroys = contains(info.symbol, "Destroy") || contains(info.symbol, "Free") ||
                    contains(info.symbol, "Unload") || contains(info.symbol, "Release");
  if (contains(info.symbol, "D16")) layout.element_bytes = 2;
  if (contains(info.symbol, "D32")) layout.element_bytes = 4;
  for (std::size_t at = 0; at < info.arguments.size();) {
    const std::size_t end = std::min(info.arguments.find(',', at), info.arguments.size());
    const std::size_t colon = info.arguments.find(':', at);
    Argument argument;
    argument.name = info.arguments.substr(at, std::min(colon, end) - at);
    if (colon < end && colon + 1 < end) argument.kind = info.arguments[colon + 1];
    note_index(layout, argument.name, static_cast<int>(layout.arguments.size()));
    layout.arguments.push_back(std::move(argument));
    at = end + 1;
  }
  return layout;
}

// The copy's struct as words; false where the call has none of a known size.
bool copy_struct(const ApiLayout& layout, const CallView& call, const CopyStruct*& shape, std::uint64_t (&words)[25]) {
  std::uint32_t bytes = 0;
  const std::uint8_t* data = call.blob(layout.copy, bytes);
  if (data == nullptr) return false;
  shape = contains(layout.symbol, "2D") ? &kCopy2D : contains(layout.symbol, "3D") ? &kCopy3D : nullptr;
  if (shape == nullptr || bytes < shape->words * 8) return false;
  std::memcpy(words, data, shape->words * 8);
  return true;
}

}  // namespace

const std::uint8_t* CallView::blob(int index, std::uint32_t& bytes) const {
  bytes = 0;
  if (index < 0 || word_count() < 3 + std::size_t{argument_count()}) return nullptr;
  const std::uint64_t* at = words() + 3 + argument_count();
  std::size_t left =
      std::min<std::size_t>((trace::high(words()[2]) + std::size_t{7}) / 8, word_count() - 3 - argument_count());
  while (left > 0) {
    const std::uint32_t number = trace::low(*at), size = trace::high(*at);
    const std::size_t used = 1 + trace::words_for(size);
    if (used > left) return nullptr;
    if (number == static_cast<std::uint32_t>(index)) {
      bytes = size;
      return reinterpret_cast<const std::uint8_t*>(at + 1);
    }
    at += used;
    left -= used;
  }
  return nullptr;
}

ApiTable::ApiTable(const std::vector<trace::ApiInfo>& apis, bool ranges) : layouts_(1) {
  layouts_.reserve(apis.size() + 1);
  for (const trace::ApiInfo& api : apis) {
    layouts_.push_back(parse(api));
    layouts_.back().in_call = driver::in_call_of(std::string_view(api.symbol).substr(0, api.symbol.find('_')));
    layouts_.back().begins_range = ranges && api.symbol == "cuProfilerStart";
    layouts_.back().ends_range = ranges && api.symbol == "cuProfilerStop";
  }
}

std::uint64_t moved_bytes(const ApiLayout& layout, const CallView& call) {
  std::uint64_t words[25];
  const CopyStruct* shape = nullptr;
  if (copy_struct(layout, call, shape, words)) {
    return words[shape->width] * words[shape->height] * (shape->depth == 0 ? 1 : words[shape->depth]);
  }
  if (layout.bytes >= 0) return call.argument(layout.bytes);
  const std::uint64_t element = layout.element_bytes;
  if (layout.width >= 0) return call.argument(layout.width) * call.argument(layout.height) * element;
  return layout.api_class == ApiClass::kMemset ? call.argument(layout.count) * element : 0;
}

CopyDirection copy_direction(const ApiLayout& layout, const CallView& call) {
  if (layout.api_class == ApiClass::kCopyToHost) return CopyDirection::kToHost;
  if (layout.api_class == ApiClass::kCopyToDevice) return CopyDirection::kToDevice;
  std::uint64_t words[25];
  const CopyStruct* shape = nullptr;
  if (copy_struct(layout, call, shape, words)) {
    const std::uint64_t from = words[shape->source_type] & 0xffffffffu;
    const std::uint64_t to = words[shape->destination_type] & 0xffffffffu;
    if (to == kHostMemory) return CopyDirection::kToHost;
    if (from == kHostMemory) return CopyDirection::kToDevice;
    return from == kUnifiedMemory || to == kUnifiedMemory ? CopyDirection::kUnknown : CopyDirection::kOnDevice;
  }
  return contains(layout.symbol, "DtoD") || contains(layout.symbol, "DtoA") || contains(layout.symbol, "AtoD") ||
                 contains(layout.symbol, "AtoA") || contains(layout.symbol, "Peer")
             ? CopyDirection::kOnDevice
             : CopyDirection::kUnknown;
}

std::uint64_t normal_stream(const ApiLayout& layout, std::uint64_t handle) {
  if (handle == 0) return layout.per_thread ? kPerThreadStream : kLegacyStream;
  if (handle == kLegacyHandle) return kLegacyStream;
  return handle == kPerThreadHandle ? kPerThreadStream : handle;
}

std::uint64_t stream_of(const ApiLayout& layout, const CallView& call) {
  return normal_stream(layout, call.argument(layout.stream));
}

void StreamModes::add(const ApiLayout& layout, const CallView& call) {
  if (layout.api_class != ApiClass::kStream || call.result() != 0 || layout.stream < 0) return;
  const std::uint64_t handle = call.argument(layout.stream);
  if (layout.destroys) {
    non_blocking_.erase(handle);
  } else if (layout.arguments[static_cast<std::size_t>(layout.stream)].kind == 'o') {
    non_blocking_[handle] = (call.argument(layout.flags) & kNonBlocking) != 0;
  }
}

}  // namespace grape::record
