#include "compressor/cache/keeper.h"

#include <signal.h>
#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "compressor/cache/folder.h"

namespace grape::cache {
namespace {

constexpr std::uint64_t kMostProgramBytes = std::uint64_t{256} << 20;  // of a file's programs
constexpr std::size_t kSlice = 32;  // entries of an older file that are taken over while others wait

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;
using Name = std::pair<std::string, Digest>;  // region, signature
using CallKey = std::pair<Name, Digest>;      // and code

CallKey key_of(const Call& call) { return {{call.region, call.signature}, call.code}; }

std::string file_name(const std::string& environment) {
  char name[64];
  std::snprintf(name, sizeof name, "%016llx.grape-cache",
                static_cast<unsigned long long>(XXH3_64bits(environment.data(), environment.size())));
  return name;
}

// `all` in the order of a cache.
bool has_all(const std::vector<Padding>& all, const std::vector<Padding>& some) {
  return std::all_of(some.begin(), some.end(), [&all](const Padding& each) {
    const auto found = std::lower_bound(all.begin(), all.end(), each, [](const Padding& a, const Padding& b) {
      return std::tie(a.kernel, a.word) < std::tie(b.kernel, b.word);
    });
    if (found == all.end() || found->kernel != each.kernel || found->word != each.word) return false;
    if ((each.own & ~found->own) != 0 || (each.varies & ~found->varies) != 0) return false;
    return std::equal(each.seen.begin(), each.seen.end(), found->seen.begin(), std::less_equal<>());
  });
}

}  // namespace

struct Keeper::State {
  explicit State(Options given)
      : options(std::move(given)), file(file_name(options.environment)), builder(options.environment) {}

  Options options;
  std::string file, path;
  Folder folder;  // under `writing`
  Cache earlier;
  std::set<Name> names;                     // of `earlier`
  std::map<CallKey, const Entry*> entries;  // of `earlier`

  std::mutex writing;  // held by whoever writes; before `mutex`
  mutable std::mutex mutex;
  std::condition_variable changed;
  Builder builder;  // the rest under `mutex`
  std::set<CallKey> added, refuted, used;
  std::set<std::string> refuted_regions;
  std::uint64_t changes = 0, written = 0;  // additions and refutations; those that the file has
  Clock::time_point first_change, last_change;
  bool background = false, ends = false;
  std::thread thread;

  // False: there is none that may be used.
  bool read(Cache& into, bool tell) {
    std::vector<std::uint8_t> bytes;
    std::string error;
    if (folder.read(file, bytes, error) && cache::open(bytes, into, error)) {
      if (into.environment == options.environment) return true;
      error = "it is for another environment";
    }
    into = Cache();
    if (!error.empty() && tell) say(path + " is not used: " + error);
    return false;
  }

  void change(const Lock&) {
    last_change = Clock::now();
    if (changes == written) first_change = last_change;
    ++changes;
    changed.notify_one();
  }

  // Of what was added here.
  template <typename Which>
  void forget(Which which) {
    for (auto at = added.begin(); at != added.end();) at = which(*at) ? added.erase(at) : std::next(at);
    builder.remove([&which](const Entry& entry) { return which(key_of(entry.call)); });
  }

  // Has the file all that was added here, by this process or by others?
  bool needs(const Cache& latest) {
    if (latest.programs == nullptr || !refuted.empty() || !refuted_regions.empty()) return true;
    std::set<CallKey> there;
    for (const Entry& entry : latest.entries) there.insert(key_of(entry.call));
    return !std::includes(there.begin(), there.end(), added.begin(), added.end()) ||
           !has_all(latest.padding, builder.so_far().padding);
  }

  // What was refuted goes, what was used is young.
  void take_over(Cache& latest) {
    const auto gone = [this](const Entry& entry) {
      return refuted.count(key_of(entry.call)) != 0 || refuted_regions.count(entry.call.region) != 0;
    };
    latest.entries.erase(std::remove_if(latest.entries.begin(), latest.entries.end(), gone), latest.entries.end());
    const auto now = static_cast<std::uint64_t>(std::time(nullptr));
    for (Entry& entry : latest.entries) {
      if (used.count(key_of(entry.call)) != 0) entry.last_used = now;
    }
  }

  // The bytes of the file that is to be; none: what is there has all.
  std::vector<std::uint8_t> merged(Cache& latest) {
    Lock lock(mutex);
    std::vector<std::uint8_t> bytes;
    written = changes;
    if (!needs(latest)) return bytes;
    take_over(latest);
    // Whoever adds meanwhile waits for a slice, not for all of it.
    while (latest.programs != nullptr && !builder.merge(latest, kMostProgramBytes, kSlice)) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    save(builder.so_far(), bytes);
    return bytes;
  }

  void run() {
    Lock lock(mutex);
    while (!ends) {
      if (changes == written) {
        changed.wait(lock);
        continue;
      }
      const Clock::time_point due = std::min(last_change + options.quiet, first_change + options.latest);
      if (Clock::now() < due) {
        changed.wait_until(lock, due);
        continue;
      }
      lock.unlock();
      const bool done = write_now();
      lock.lock();
      if (!done) first_change = last_change = Clock::now();  // once more, later
    }
  }

  // False: another process has the folder.
  bool write_now() {
    const Lock one_at_a_time(writing);
    {
      const Lock lock(mutex);
      if (changes == written) return true;
    }
    if (!folder.lock(static_cast<int>(options.patience.count()))) return false;
    std::string error;
    try {
      Cache latest;  // others may have added to it
      read(latest, false);
      const std::vector<std::uint8_t> bytes = merged(latest);
      if (bytes.empty() || folder.write(file, bytes, error)) error.clear();
    } catch (const std::bad_alloc&) {
      error = "no memory";
    }
    folder.unlock();
    if (!error.empty()) say("nothing was written to " + path + ": " + error);
    return true;
  }

  void start_thread() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      background = false;  // then at the end
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void say(const std::string& line) const { options.say(line.c_str()); }
};

Keeper::Keeper() = default;

Keeper::~Keeper() {
  {
    const Lock lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_one();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

std::unique_ptr<Keeper> Keeper::open(Options options) {
  auto state = std::make_unique<State>(std::move(options));
  std::string error;
  if (!state->folder.open(state->options.folder, error)) {
    state->say("GRAPE_CACHE=" + state->options.folder + " is not used: " + error);
    return nullptr;
  }
  state->path = state->options.folder + "/" + state->file;
  state->read(state->earlier, true);
  for (const Entry& entry : state->earlier.entries) {
    const CallKey key = key_of(entry.call);
    state->names.insert(key.first);
    state->entries[key] = &entry;
  }
  std::unique_ptr<Keeper> keeper(new Keeper);
  keeper->state_ = std::move(state);
  return keeper;
}

const Cache& Keeper::earlier() const noexcept { return state_->earlier; }
const std::string& Keeper::path() const noexcept { return state_->path; }

bool Keeper::knows(const std::string& region, const Digest& signature) const {
  const Lock lock(state_->mutex);
  return state_->names.count({region, signature}) != 0 && state_->refuted_regions.count(region) == 0;
}

const Entry* Keeper::find(const Call& call) const {
  const auto found = state_->entries.find(key_of(call));
  const Lock lock(state_->mutex);
  if (found == state_->entries.end() || state_->refuted_regions.count(call.region) != 0) return nullptr;
  return state_->refuted.count(found->first) == 0 ? found->second : nullptr;
}

bool Keeper::add(Entry entry, program::Program program, const std::function<std::string(std::uint32_t)>& place) {
  const CallKey key = key_of(entry.call);
  State& state = *state_;
  const Lock lock(state.mutex);
  if (state.entries.count(key) != 0 && state.refuted.count(key) == 0) return false;
  if (state.refuted_regions.count(entry.call.region) != 0) return false;
  if (!state.builder.add(std::move(entry), std::move(program), place)) return false;
  state.added.insert(key);
  state.change(lock);
  if (state.background && !state.thread.joinable()) state.start_thread();
  return true;
}

void Keeper::add_padding(const Padding& padding) {
  const Lock lock(state_->mutex);
  if (state_->builder.add_padding(padding) && !has_all(state_->earlier.padding, {padding})) state_->change(lock);
}

void Keeper::note_use(const Call& call) {
  const Lock lock(state_->mutex);
  state_->used.insert(key_of(call));
}

void Keeper::refute(const Call& call) {
  const CallKey key = key_of(call);
  const Lock lock(state_->mutex);
  state_->refuted.insert(key);
  state_->forget([&key](const CallKey& other) { return other == key; });
  state_->change(lock);
}

void Keeper::refute_region(const std::string& region) {
  const Lock lock(state_->mutex);
  state_->refuted_regions.insert(region);
  state_->forget([&region](const CallKey& other) { return other.first.first == region; });
  state_->change(lock);
}

std::uint64_t Keeper::added() const {
  const Lock lock(state_->mutex);
  return state_->added.size();
}

void Keeper::write_in_background() {
  const Lock lock(state_->mutex);
  state_->background = true;
}

bool Keeper::write() {
  if (state_->write_now()) return true;
  state_->say("nothing was written to " + state_->path + ": another process writes to it");
  return false;
}

}  // namespace grape::cache
