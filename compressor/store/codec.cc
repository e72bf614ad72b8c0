#include "compressor/store/codec.h"

#include <zdict.h>
#include <zstd.h>

#include <cstdio>
#include <new>

// Where zstd's trainer would write to, were it told to say something: see scripts/cmake/Dependencies.cmake.
extern "C" {
std::FILE* grape_zstd_stderr = stderr;
}

namespace grape::store {
namespace {

constexpr int kLevel = 3;             // of images, and of differences without a dictionary
constexpr int kDictionaryLevel = 12;  // a difference is a few KB: levels cost little
constexpr std::size_t kDictionaryBytes = 24u << 10;
constexpr std::size_t kPooled = 4;  // contexts that are kept of each kind; no more threads than that read at one time
constexpr std::size_t kSmall = 64u << 10;  // contexts that compressed more have megabytes of tables, and are not kept

}  // namespace

const ZSTD_CDict* Dictionary::encoder() const {
  std::call_once(encoder_made_, [&] { encoder_ = ZSTD_createCDict(bytes_.data(), bytes_.size(), kDictionaryLevel); });
  return encoder_;
}

const ZSTD_DDict* Dictionary::decoder() const {
  std::call_once(decoder_made_, [&] { decoder_ = ZSTD_createDDict(bytes_.data(), bytes_.size()); });
  return decoder_;
}

Dictionary::~Dictionary() {
  ZSTD_freeCDict(encoder_);
  ZSTD_freeDDict(decoder_);
}

std::shared_ptr<const Dictionary> Dictionary::train(const Bytes& samples, const std::vector<std::size_t>& sizes) {
  Bytes content(kDictionaryBytes);
  const std::size_t size = ZDICT_trainFromBuffer(content.data(), content.size(), samples.data(), sizes.data(),
                                                 static_cast<unsigned>(sizes.size()));
  if (ZDICT_isError(size) != 0) return nullptr;
  return from_bytes(content.data(), size);
}

std::shared_ptr<const Dictionary> Dictionary::from_bytes(const std::uint8_t* data, std::size_t size) {
  if (size > kMaxDictionaryBytes) return nullptr;
  return std::shared_ptr<const Dictionary>(new Dictionary(Bytes(data, data + size)));
}

std::size_t Dictionary::resident_bytes() const {
  return bytes_.size() + ZSTD_sizeof_CDict(encoder_) + ZSTD_sizeof_DDict(decoder_);
}

Codec::~Codec() {
  for (ZSTD_CCtx* context : encoders_) ZSTD_freeCCtx(context);
  for (ZSTD_DCtx* context : decoders_) ZSTD_freeDCtx(context);
}

template <typename Context>
Context* Codec::take(std::vector<Context*>& pool, Context* (*make)()) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pool.empty()) {
      Context* context = pool.back();
      pool.pop_back();
      return context;
    }
  }
  Context* context = make();
  if (context == nullptr) throw std::bad_alloc();
  return context;
}

template <typename Context>
void Codec::give(std::vector<Context*>& pool, Context* context, std::size_t (*free)(Context*)) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pool.size() < kPooled) {
      pool.reserve(kPooled);
      pool.push_back(context);
      return;
    }
  }
  free(context);
}

bool Codec::compress(const Bytes& raw, const Dictionary* dictionary, Bytes& to) {
  const ZSTD_CDict* tables = dictionary != nullptr ? dictionary->encoder() : nullptr;
  if (dictionary != nullptr && tables == nullptr) return false;
  to.resize(ZSTD_compressBound(raw.size()));
  ZSTD_CCtx* context = raw.size() <= kSmall ? take(encoders_, &ZSTD_createCCtx) : ZSTD_createCCtx();
  if (context == nullptr) throw std::bad_alloc();
  // The size and the dictionary's number are known otherwise.
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_dictIDFlag, 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, dictionary != nullptr ? kDictionaryLevel : kLevel);
  ZSTD_CCtx_refCDict(context, tables);
  const std::size_t size = ZSTD_compress2(context, to.data(), to.size(), raw.data(), raw.size());
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  if (raw.size() <= kSmall) {
    give(encoders_, context, &ZSTD_freeCCtx);
  } else {
    ZSTD_freeCCtx(context);
  }
  if (ZSTD_isError(size) != 0 || size >= raw.size()) return false;
  to.resize(size);
  to.shrink_to_fit();
  return true;
}

bool Codec::decompress(const Bytes& stored, std::size_t raw_size, const Dictionary* dictionary, Bytes& to) {
  const ZSTD_DDict* tables = dictionary != nullptr ? dictionary->decoder() : nullptr;
  if (dictionary != nullptr && tables == nullptr) return false;
  to.resize(raw_size);
  ZSTD_DCtx* context = take(decoders_, &ZSTD_createDCtx);
  const std::size_t size =
      ZSTD_decompress_usingDDict(context, to.data(), to.size(), stored.data(), stored.size(), tables);
  give(decoders_, context, &ZSTD_freeDCtx);
  return ZSTD_isError(size) == 0 && size == raw_size;
}

std::size_t Codec::resident_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t bytes = 0;
  for (const ZSTD_CCtx* context : encoders_) bytes += ZSTD_sizeof_CCtx(context);
  for (const ZSTD_DCtx* context : decoders_) bytes += ZSTD_sizeof_DCtx(context);
  return bytes;
}

}  // namespace grape::store
