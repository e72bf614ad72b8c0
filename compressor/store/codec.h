// zstd for the store: contexts that are used again, and dictionaries. Core: no CUDA, no Python. Throws std::bad_alloc
// only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "compressor/store/difference.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;
struct ZSTD_CDict_s;
struct ZSTD_DDict_s;

namespace grape::store {

constexpr std::size_t kMaxDictionaryBytes = 1u << 20;

// Immutable; any thread.
class Dictionary {
 public:
  // Of samples that lie one behind the other. Null: they are too few or too unlike.
  static std::shared_ptr<const Dictionary> train(const Bytes& samples, const std::vector<std::size_t>& sizes);
  // Of bytes from a file, which may prove to be no dictionary when it is used first. Null: too large.
  static std::shared_ptr<const Dictionary> from_bytes(const std::uint8_t* data, std::size_t size);
  ~Dictionary();
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;

  const Bytes& bytes() const { return bytes_; }
  std::size_t resident_bytes() const;  // with its tables
  // zstd's tables, made when they are asked for first. Null: it is no dictionary.
  const ZSTD_CDict_s* encoder() const;
  const ZSTD_DDict_s* decoder() const;

 private:
  explicit Dictionary(Bytes bytes) : bytes_(std::move(bytes)) {}
  Bytes bytes_;
  mutable std::once_flag encoder_made_, decoder_made_;
  mutable std::atomic<ZSTD_CDict_s*> encoder_{nullptr};
  mutable std::atomic<ZSTD_DDict_s*> decoder_{nullptr};
};

// Any thread; each call has a context for itself.
class Codec {
 public:
  Codec() = default;
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // False: it did not get smaller, and `to` is in no particular state. `dictionary` may be null.
  bool compress(const Bytes& raw, const Dictionary* dictionary, Bytes& to);
  // False: not a frame of exactly `raw_size` bytes. Nothing beyond them is written, or allocated.
  bool decompress(const Bytes& stored, std::size_t raw_size, const Dictionary* dictionary, Bytes& to);
  std::size_t resident_bytes() const;

 private:
  template <typename Context>
  Context* take(std::vector<Context*>& pool, Context* (*make)());
  template <typename Context>
  void give(std::vector<Context*>& pool, Context* context, std::size_t (*free)(Context*));

  mutable std::mutex mutex_;
  std::vector<ZSTD_CCtx_s*> encoders_;
  std::vector<ZSTD_DCtx_s*> decoders_;
};

}  // namespace grape::store
