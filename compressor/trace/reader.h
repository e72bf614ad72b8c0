// Reading a trace. Input is not trusted: sizes, ratios, ids and nesting are checked, errors carry the byte offset,
// and a file cut anywhere reads up to its last whole chunk. Never throws other than std::bad_alloc. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"

namespace grape::trace {

struct Error {
  std::string message;       // empty: no error
  std::uint64_t offset = 0;  // byte offset in the file
  explicit operator bool() const { return !message.empty(); }
};

struct Parameter {
  std::uint32_t offset;  // bytes, in the packed parameter buffer
  std::uint32_t size;    // bytes
};

struct Function {
  std::string name;  // mangled
  std::uint32_t kind = 0;
  std::uint64_t handle = 0;
  std::uint64_t module = 0;
  std::vector<Parameter> parameters;
};

struct Code {
  std::string file, qualname;
  std::uint32_t first_line = 0;
  std::uint64_t content_hash = 0;
};

struct Frame {
  std::uint32_t parent = 0, code = 0, line = 0, instruction = 0;
};

struct NativeFrame {
  std::uint32_t parent = 0;
  std::uint64_t offset = 0;
  std::string object, symbol;
};

struct Scope {
  ScopeKind kind = ScopeKind::kModule;
  std::uint64_t address = 0;
  std::string name, type;
};

// File-wide tables; index 0 is an empty entry for "none". Equal definitions of several threads share one id, except
// functions and scopes, where handle (address) and name must both agree.
struct Tables {
  std::vector<Function> functions = std::vector<Function>(1);
  std::vector<Code> codes = std::vector<Code>(1);
  std::vector<Frame> frames = std::vector<Frame>(1);
  std::vector<NativeFrame> native_frames = std::vector<NativeFrame>(1);
  std::vector<Scope> scopes = std::vector<Scope>(1);
};

struct ReaderLimits {
  std::uint64_t max_chunk_bytes = 256u << 20;  // decoded size of one chunk
  std::uint64_t max_active_bytes = 1u << 30;   // memory of all chunks that are being decoded at one time
  std::uint64_t max_definitions = 64u << 20;   // bytes of all tables together, times sixteen at most in memory
  std::uint32_t max_stack_depth = 4096;
};

struct ThreadInfo {
  std::uint32_t thread = 0;     // dense, from 1
  std::uint32_t os_thread = 0;  // kernel thread id
  std::uint64_t events = 0;
};

class Reader {
 public:
  // Opens and indexes the file: reads chunk headers, meta and end. On error the result is null and `error` says why
  // (not a trace, a newer version: both named). A truncated or damaged tail is no error here: see complete(). Of a file
  // that ends within its meta chunk nothing is known: meta() is empty, and there are no events.
  static std::unique_ptr<Reader> open(const std::string& path, Error& error, const ReaderLimits& limits = {});
  static std::unique_ptr<Reader> from_bytes(std::vector<std::uint8_t> bytes, Error& error,
                                            const ReaderLimits& limits = {});
  ~Reader();

  const Meta& meta() const;
  const End* end() const;       // null: incomplete
  bool complete() const;        // has its end chunk, and nothing was damaged before it
  const Error& damage() const;  // first damage found (truncation, checksum), if any
  std::uint64_t file_bytes() const;
  std::uint32_t format_version() const;  // major * 65536 + minor
  const std::vector<ThreadInfo>& threads() const;

  // Walks all events of all threads, ordered by sequence, definitions included, ids mapped to file-wide ones (in
  // definitions as well; 0 for what nothing defined). The view is valid until the next call, and its payload fits the
  // layout of its kind: counts may be trusted, but a launch may have fewer parameter bytes than its function's layout.
  // Damaged chunks are passed over: a kLost event with their number of events stands for each whose checksum is wrong.
  // False at the end; damage() then says whether anything was passed over.
  bool next(EventView& event, std::uint32_t& thread);
  void rewind();

  // Grows as next() passes definitions; complete once next() has returned false, and kept by rewind().
  const Tables& tables() const;

 private:
  Reader();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::trace
