// A process's cache in a folder: the entries of earlier processes, and those that this one adds. A thread of its own
// writes additions from time to time, and write() once more at the end. A killed process loses the additions since the
// last write. Any thread; throws std::bad_alloc only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "compressor/cache/cache.h"

namespace grape::cache {

class Keeper {
 public:
  struct Options {
    std::string folder;
    std::string environment;                    // the cache's; another one's file is not looked at
    void (*say)(const char* line);              // what goes wrong; from any thread
    std::chrono::milliseconds quiet{20'000};    // written by the thread once nothing was added for so long,
    std::chrono::milliseconds latest{120'000};  // or so long after the first addition
    std::chrono::milliseconds patience{3'000};  // for other processes' writing
  };

  // Null: the folder is not to be used, and `say` was told why.
  static std::unique_ptr<Keeper> open(Options options);
  // Ends the thread without writing.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // As the file was when it was opened; it does not change.
  const Cache& earlier() const noexcept;
  const std::string& path() const noexcept;  // of the file
  // Is there any entry for such calls, whatever code they ran?
  bool knows(const std::string& region, const Digest& signature) const;
  const Entry* find(const Call& call) const;  // of earlier(); null: there is none, or it was refuted

  // See Builder::add(). False as well if the file has the call.
  bool add(Entry entry, program::Program program, const std::function<std::string(std::uint32_t)>& place);
  void add_padding(const Padding& padding);       // is written with what is added
  void note_use(const Call& call);                // it is younger then than what nobody uses
  void refute(const Call& call);                  // it goes from the file, unless it is added anew
  void refute_region(const std::string& region);  // all its calls go, and none is known or added any more
  std::uint64_t added() const;

  // Starts the thread, at the first addition. It has all signals blocked.
  void write_in_background();
  // Now, if anything was added or refuted that the file has not. False: it could not be written, and `say` was told.
  bool write();

 private:
  Keeper();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::cache
