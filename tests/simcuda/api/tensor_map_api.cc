// Tensor maps. The real 128 bytes are opaque; these hold the address in the first word and a digest of the rest.
#include <cstring>
#include <initializer_list>

#include "context.h"

namespace simcuda {

namespace {

// FNV-1a over the arguments, one word at a time.
class Digest {
 public:
  void add(cuuint64_t word) { value_ = (value_ ^ word) * 0x100000001b3ULL; }
  template <typename T>
  void add_all(const T* words, cuuint32_t count) {
    for (cuuint32_t i = 0; words != nullptr && i < count; ++i) add(static_cast<cuuint64_t>(words[i]));
  }
  cuuint64_t value() const { return value_; }

 private:
  cuuint64_t value_ = 0xcbf29ce484222325ULL;
};

CUresult encode(CUtensorMap* map, cuuint32_t rank, void* address, const cuuint64_t* dimensions,
                const cuuint64_t* strides, const cuuint32_t* element_strides, Digest digest,
                std::initializer_list<cuuint64_t> settings) {
  if (map == nullptr || rank < 1 || rank > 5 || dimensions == nullptr || (rank > 1 && strides == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0 || reinterpret_cast<std::uintptr_t>(map) % 64 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  digest.add(rank);
  digest.add_all(dimensions, rank);
  digest.add_all(strides, rank - 1);
  digest.add_all(element_strides, rank);
  for (const cuuint64_t setting : settings) digest.add(setting);
  std::memset(map, 0, sizeof *map);
  map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
  map->opaque[1] = rank;
  for (cuuint32_t i = 0; i < rank; ++i) map->opaque[2 + i] = dimensions[i];
  map->opaque[15] = digest.value();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     const cuuint64_t* dimensions, const cuuint64_t* strides, const cuuint32_t* box,
                                     const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
  if (rank > 5) return CUDA_ERROR_INVALID_VALUE;
  Digest digest;
  digest.add_all(box, rank);
  return encode(map, rank, address, dimensions, strides, element_strides, digest,
                {1, static_cast<cuuint64_t>(type), static_cast<cuuint64_t>(interleave),
                 static_cast<cuuint64_t>(swizzle), static_cast<cuuint64_t>(promotion), static_cast<cuuint64_t>(fill)});
}

CUresult api::cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                      const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower,
                                      const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                      const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                      CUtensorMapFloatOOBfill fill) {
  if (rank < 3 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  Digest digest;
  digest.add_all(lower, rank - 2);
  digest.add_all(upper, rank - 2);
  return encode(map, rank, address, dimensions, strides, element_strides, digest,
                {2, static_cast<cuuint64_t>(type), channels, pixels, static_cast<cuuint64_t>(interleave),
                 static_cast<cuuint64_t>(swizzle), static_cast<cuuint64_t>(promotion), static_cast<cuuint64_t>(fill)});
}

CUresult api::cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                          const cuuint64_t* dimensions, const cuuint64_t* strides, int lower, int upper,
                                          cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* element_strides,
                                          CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                          CUtensorMapFloatOOBfill fill) {
  if (rank < 3 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  return encode(map, rank, address, dimensions, strides, element_strides, Digest(),
                {3, static_cast<cuuint64_t>(type), static_cast<cuuint64_t>(lower), static_cast<cuuint64_t>(upper),
                 channels, pixels, static_cast<cuuint64_t>(interleave), static_cast<cuuint64_t>(mode),
                 static_cast<cuuint64_t>(swizzle), static_cast<cuuint64_t>(promotion), static_cast<cuuint64_t>(fill)});
}

CUresult api::cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
  return CUDA_SUCCESS;
}

}  // namespace simcuda
