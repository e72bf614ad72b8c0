#include "shim/record/function_cache.h"

#include <errno.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "compressor/trace/event.h"
#include "shim/driver/function_info.h"
#include "shim/driver/kernel_node.h"

namespace grape::record {

namespace {

constexpr std::uint32_t kMaxNameBytes = 32 * 1024;

using Cache = FunctionCache;

bool grow(Cache& cache) noexcept {
  const std::uint32_t larger = cache.room == 0 ? 256 : cache.room * 2;
  auto* fresh = static_cast<Function*>(std::aligned_alloc(alignof(Function), larger * sizeof(Function)));
  if (fresh == nullptr) return false;
  std::uninitialized_default_construct_n(fresh, larger);
  Function* old = cache.places;
  const std::uint32_t old_room = cache.room;
  cache.places = fresh;
  cache.room = larger;
  for (std::uint32_t i = 0; i < old_room; ++i) {
    if (old[i].handle != nullptr) cache.place_of(old[i].handle) = old[i];
  }
  std::free(old);
  return true;
}

void clear(Cache& cache) noexcept {
  for (std::uint32_t i = 0; i < cache.room; ++i) {
    std::free(cache.places[i].far);
    std::free(cache.places[i].name);
    cache.places[i] = Function{};
  }
  cache.used = 0;
}

void destroy_cache(void* data) {
  auto* cache = static_cast<Cache*>(data);
  clear(*cache);
  std::free(cache->places);
  std::free(cache);
}

void read_layout(Function& function, bool kernel) noexcept {
  std::uint32_t room = Function::kNear;
  const auto keep = [&](std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) {
    if (index == room) {
      room *= 2;
      auto* larger = static_cast<ParameterSlot*>(std::realloc(function.far, room * sizeof(ParameterSlot)));
      if (larger == nullptr) return false;
      if (function.far == nullptr) std::copy_n(function.near, Function::kNear, larger);
      function.far = larger;
    }
    (function.far != nullptr ? function.far : function.near)[index] = {offset, bytes};
    function.parameter_count = index + 1;
    function.parameter_bytes = std::max(function.parameter_bytes, offset + bytes);
    return true;
  };
  function.has_layout = driver::for_each_parameter(function.handle, kernel, keep);
}

// False: no room for the definition.
bool define(ThreadLog& log, const Function& function, const driver::FunctionInfo& description, std::uint32_t id,
            std::uint32_t name_bytes) noexcept {
  const std::uint32_t count = function.has_layout ? function.parameter_count : 0;
  const auto words = static_cast<std::uint32_t>(4 + count + trace::words_for(name_bytes));
  std::uint64_t* out = log.begin(trace::EventKind::kDefFunction, function.key, words, {record::ticks(), 0},
                                 function.has_layout ? 0 : trace::kFlagNoLayout);
  if (out == nullptr) return false;
  out[words - 1] = 0;  // padding
  out[0] = trace::pack(id, description.kernel ? 1 : 0);
  out[1] = reinterpret_cast<std::uint64_t>(function.handle);
  out[2] = description.owner;
  out[3] = trace::pack(count, name_bytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    out[4 + i] = trace::pack(function.parameters()[i].offset, function.parameters()[i].bytes);
  }
  if (name_bytes != 0) std::memcpy(out + 4 + count, description.name, name_bytes);
  log.commit();
  return true;
}

const Function* learn(ThreadLog& log, Cache& cache, CUfunction handle) noexcept {
  if (cache.used * 2 >= cache.room && !grow(cache)) return nullptr;
  Function& place = cache.place_of(handle);
  const driver::FunctionInfo description = driver::function_info(handle);
  const auto name_bytes =
      description.name != nullptr ? static_cast<std::uint32_t>(strnlen(description.name, kMaxNameBytes)) : 0;
  if (place.handle == nullptr) {
    ++cache.used;
    place.handle = handle;
    place.key = static_cast<std::uint32_t>(XXH3_64bits(description.name, name_bytes));
    if (description.name != nullptr) place.name = strndup(description.name, name_bytes);
    read_layout(place, description.kernel);
    if (!place.has_layout) place.parameter_count = place.parameter_bytes = 0;
  }
  if (define(log, place, description, cache.last_id + 1, name_bytes)) place.id = ++cache.last_id;
  return &place;
}

Cache* cache_of(ThreadLog& log) noexcept {
  if (log.functions.data == nullptr) {
    auto* cache = static_cast<Cache*>(std::calloc(1, sizeof(Cache)));
    if (cache == nullptr || !grow(*cache)) {
      std::free(cache);
      return nullptr;
    }
    log.functions.data = cache;
    log.functions.destroy = destroy_cache;
  }
  return static_cast<Cache*>(log.functions.data);
}

}  // namespace

const Function* learn_function(ThreadLog& log, CUfunction handle) noexcept {
  const int saved_errno = errno;
  Cache* cache = cache_of(log);
  const Function* function = nullptr;
  if (cache != nullptr && handle != nullptr) {
    const std::uint32_t epoch = g_module_epoch.load(std::memory_order_acquire);
    if (cache->epoch != epoch) {
      clear(*cache);
      cache->epoch = epoch;
    }
    function = learn(log, *cache, handle);
  }
  errno = saved_errno;
  return function;
}

const Function* function_of_id(ThreadLog& log, std::uint32_t id) noexcept {
  const auto* cache = static_cast<const Cache*>(log.functions.data);
  if (cache == nullptr || id == 0 || cache->epoch != g_module_epoch.load(std::memory_order_acquire)) {
    return nullptr;
  }
  for (std::uint32_t i = 0; i < cache->room; ++i) {
    if (cache->places[i].handle != nullptr && cache->places[i].id == id) return &cache->places[i];
  }
  return nullptr;
}

PackedParameters packed_parameters(const Function* function, void* const* parameters, void* const* extra) noexcept {
  PackedParameters result;
  result.function = function;
  if (parameters != nullptr && function != nullptr && function->has_layout) {
    result.parameters = parameters;
    result.bytes = function->parameter_bytes;
    return result;
  }
  if (extra != nullptr) {
    const driver::PackedBuffer buffer = driver::packed_buffer(extra);
    if (buffer.data != nullptr) {
      result.packed = buffer.data;
      result.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(buffer.bytes, driver::kMostParameterBytes));
      result.flags = static_cast<std::uint16_t>(
          trace::kFlagPackedExtra | (buffer.bytes > driver::kMostParameterBytes ? trace::kFlagTruncated : 0));
      return result;
    }
  }
  if (function == nullptr || !function->has_layout) result.flags = trace::kFlagNoLayout;
  return result;
}

void PackedParameters::copy_to(std::uint8_t* destination) const noexcept {
  const std::uint32_t padded = static_cast<std::uint32_t>(trace::words_for(bytes)) * 8;
  if (packed != nullptr) {
    std::memcpy(destination, packed, bytes);
    std::memset(destination + bytes, 0, padded - bytes);
    return;
  }
  if (parameters == nullptr || padded == 0) return;
  const std::uint32_t end = copy_parameters(destination, *function, parameters);
  std::memset(destination + end, 0, padded - end);
}

}  // namespace grape::record
