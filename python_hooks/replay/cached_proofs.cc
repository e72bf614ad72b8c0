#include "python_hooks/replay/cached_proofs.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "compressor/cache/adopt.h"
#include "compressor/cache/folder.h"
#include "python_hooks/frame_names.h"
#include "python_hooks/replay/signature.h"
#include "python_hooks/state/portable.h"
#include "python_hooks/state/torch_symbols.h"
#include "python_hooks/state/walker.h"
#include "shim/interpose/kernel_content.h"
#include "shim/lifecycle/build_id.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/record/thread_log.h"

namespace grape::python::replay {
namespace {

constexpr std::uint64_t kMostProgramBytes = std::uint64_t{256} << 20;  // of a file's programs
constexpr int kPatience = 3000;                                        // milliseconds, for another process to write

void add_line(std::string& text, const char* key, const std::string& value) {
  text += key;
  text += '=';
  for (const char c : value) text += c == '\n' ? ' ' : c;
  text += '\n';
}

// What a proof stands on besides its kernels' and its code's content.
std::string environment() {
  std::string text;
  add_line(text, "grape", GRAPE_VERSION " " + lifecycle::build_id());
  text += interpose::machine();
  add_line(text, "python", g_api.Py_GetVersion());
  Object* torch = state::torch_member("torch", "__version__");
  add_line(text, "torch", torch != nullptr && is_text(torch) ? state::text_value(torch) : "");
  return text;
}

std::string file_name(const std::string& environment_text) {
  char name[64];
  std::snprintf(name, sizeof name, "%016llx.grape-cache",
                static_cast<unsigned long long>(XXH3_64bits(environment_text.data(), environment_text.size())));
  return name;
}

struct Key {
  std::string region;
  cache::Digest signature;
  bool operator<(const Key& other) const {
    return std::tie(region, signature) < std::tie(other.region, other.signature);
  }
};
struct CallKey {
  Key key;
  cache::Digest code;
  bool operator<(const CallKey& other) const { return key < other.key || (!(other.key < key) && code < other.code); }
};
CallKey key_of(const cache::Call& call) { return {{call.region, call.signature}, call.code}; }

std::atomic<CachedProofs*> g_proofs{nullptr};

}  // namespace

struct CachedProofs::State {
  std::mutex mutex;  // write() may come from any thread; for what it uses
  cache::Folder folder;
  std::string environment_text, file;
  cache::Cache earlier;
  std::map<Key, bool> known;                     // has entries
  std::map<CallKey, const cache::Entry*> calls;  // of `earlier`
  std::set<CallKey> refuted, added;
  std::unordered_map<std::uint64_t, cache::Digest> modules;  // digests of modules' states, by hash of their bytes
  std::unordered_map<std::uint64_t, std::pair<std::uint32_t, cache::Digest>> kernels;  // by handle; module epoch
  std::unique_ptr<cache::Builder> builder;
  std::uint64_t used = 0;

  // False: GRAPE_CACHE is not to be used.
  bool open();
  bool read(cache::Cache& into);
  void index();
  bool kernel(const program::FunctionInfo& function, cache::Digest& digest);
  bool kernels_of(const program::Program& program, std::vector<cache::Digest>& digests);
  void add_padding(const program::PaddingKnowledge& padding);
  bool write();
};

bool CachedProofs::State::open() {
  std::string error;
  if (!folder.open(config().cache, error)) {
    notice("GRAPE_CACHE=%s is not used: %s", config().cache, error.c_str());
    return false;
  }
  environment_text = environment();
  file = file_name(environment_text);
  builder = std::make_unique<cache::Builder>(environment_text);
  if (read(earlier)) index();
  return true;
}

// False: there is none that may be used.
bool CachedProofs::State::read(cache::Cache& into) {
  std::vector<std::uint8_t> bytes;
  std::string error;
  if (folder.read(file, bytes, error) && cache::open(bytes, into, error) && into.environment == environment_text) {
    return true;
  }
  into = cache::Cache();
  if (!error.empty()) notice("%s/%s is not used: %s", config().cache, file.c_str(), error.c_str());
  return false;
}

void CachedProofs::State::index() {
  for (const cache::Entry& entry : earlier.entries) {
    const CallKey key = key_of(entry.call);
    known[key.key] = true;
    calls[key] = &entry;
  }
}

bool CachedProofs::State::kernel(const program::FunctionInfo& function, cache::Digest& digest) {
  const std::uint32_t epoch = record::g_module_epoch.load(std::memory_order_acquire);
  auto& [known_epoch, known_digest] = kernels[function.handle];
  if (known_digest == cache::Digest() || known_epoch != epoch) {
    known_epoch = epoch;
    known_digest = {};
    if (!interpose::kernel_content(function.handle, known_digest)) return false;
  }
  digest = known_digest;
  return true;
}

bool CachedProofs::State::kernels_of(const program::Program& program, std::vector<cache::Digest>& digests) {
  for (const program::FunctionInfo& function : program.functions) {
    digests.emplace_back();
    if (!kernel(function, digests.back())) return false;
  }
  return true;
}

void CachedProofs::State::add_padding(const program::PaddingKnowledge& padding) {
  for (const auto& learned : padding.learned()) {
    cache::Padding one;
    if (!kernel(learned.function, one.kernel)) continue;
    for (const auto& [word, seen] : learned.counts) {
      one.word = word;
      one.seen = seen;
      builder->add_padding(one);
    }
  }
}

bool CachedProofs::State::write() {
  std::string error = "another process writes to it";
  std::vector<std::uint8_t> bytes;
  bool written = folder.lock(kPatience);
  if (written) {
    cache::Cache latest;  // others may have added to it meanwhile
    if (read(latest)) {
      const auto refuted_here = [this](const cache::Entry& entry) { return refuted.count(key_of(entry.call)) != 0; };
      latest.entries.erase(std::remove_if(latest.entries.begin(), latest.entries.end(), refuted_here),
                           latest.entries.end());
      builder->merge(latest, kMostProgramBytes);
    }
    cache::save(builder->take(), bytes);
    written = folder.write(file, bytes, error);
    folder.unlock();
  }
  if (!written) notice("GRAPE_CACHE=%s: nothing was written: %s", config().cache, error.c_str());
  return written;
}

CachedProofs::CachedProofs() : state_(std::make_unique<State>()) {}

CachedProofs* CachedProofs::instance() noexcept {
  static CachedProofs* const proofs = []() -> CachedProofs* {
    if (config().cache[0] == '\0' || config().mode != Mode::kReplay) return nullptr;
    try {
      static auto& made = *new CachedProofs;
      if (!made.state_->open()) return nullptr;
      g_proofs.store(&made);
      return &made;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }();
  return proofs;
}

CachedProofs* CachedProofs::in_use() noexcept { return g_proofs.load(); }

cache::Digest CachedProofs::name(const Region& region, const Call& call) {
  Call portable = call;
  if (!state::take_portable_dispatch_state(portable.dispatch)) return {};
  const std::vector<std::uint8_t>& state = region.guard->bytes();
  cache::Digest& module = state_->modules[XXH3_64bits(state.data(), state.size())];
  if (module == cache::Digest()) {
    state::Walk walk = state::Walk::portable(true);
    if (!walk.add(call.root, "module")) return {};
    module = state::digest_of(walk.bytes());
  }
  state::Walk walk = state::Walk::portable(false);
  if (!write_call(portable, walk)) return {};
  walk.add_bytes(&module, sizeof module);
  walk.add_bytes(region.shared.data(), region.shared.size() * sizeof(std::uint64_t));
  return state::digest_of(walk.bytes());
}

bool CachedProofs::knows(const Region& region, const cache::Digest& signature) const noexcept {
  return signature != cache::Digest() && state_->known.count({region.name, signature}) != 0;
}

std::unique_ptr<program::Program> CachedProofs::find(const cache::Call& call, const cache::Digest& outcome,
                                                     const program::Program& seen) {
  const auto found = state_->calls.find(key_of(call));
  if (found == state_->calls.end() || found->second->outcome != outcome) return nullptr;
  if (state_->refuted.count(found->first) != 0) return nullptr;
  auto program = std::make_unique<program::Program>();
  std::vector<cache::Digest> kernels;
  std::string error;
  if (!state_->kernels_of(seen, kernels) || !state_->earlier.programs->get(found->second->id, *program, error)) {
    return nullptr;
  }
  return cache::adopt(*program, seen, kernels) ? std::move(program) : nullptr;
}

void CachedProofs::note_use() noexcept { ++state_->used; }

CacheReport CachedProofs::report() const {
  const State& state = *state_;
  return {std::string(config().cache) + "/" + state.file, state.earlier.entries.size(), state.used, state.added.size()};
}

void CachedProofs::refute(const cache::Call& call) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->refuted.insert(key_of(call));
}

void CachedProofs::add(const cache::Call& call, const cache::Digest& outcome, const program::Program& observed) {
  const CallKey key = key_of(call);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const bool known = state_->calls.count(key) != 0 && state_->refuted.count(key) == 0;
  if (state_->builder == nullptr || call.signature == cache::Digest() || known || state_->added.count(key) != 0) return;
  std::vector<cache::Digest> kernels;
  if (!state_->kernels_of(observed, kernels)) return;
  program::Program program = observed;
  for (std::size_t i = 0; i < kernels.size(); ++i) program.functions[i].handle = cache::handle_of(kernels[i]);
  cache::Entry entry;
  entry.call = call;
  entry.outcome = outcome;
  entry.last_used = static_cast<std::uint64_t>(std::time(nullptr));
  if (state_->builder->add(std::move(entry), std::move(program), place_of_frame)) state_->added.insert(key);
}

program::PaddingKnowledge::Counts CachedProofs::padding_of(const program::FunctionInfo& function) {
  program::PaddingKnowledge::Counts counts;
  cache::Digest digest;
  if (!state_->kernel(function, digest)) return counts;
  const auto& all = state_->earlier.padding;
  const auto first = std::lower_bound(all.begin(), all.end(), digest,
                                      [](const cache::Padding& one, const cache::Digest& d) { return one.kernel < d; });
  for (auto at = first; at != all.end() && at->kernel == digest; ++at) counts[at->word] = at->seen;
  return counts;
}

void CachedProofs::write(const program::PaddingKnowledge& padding) noexcept {
  try {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->builder == nullptr || (state_->added.empty() && state_->refuted.empty())) return;
    state_->add_padding(padding);
    if (state_->write())
      log_line(LogLevel::kInfo, "%zu programs were added to %s", state_->added.size(), config().cache);
    state_->builder = nullptr;
  } catch (const std::bad_alloc&) {
    notice("no memory to write to GRAPE_CACHE");
  }
}

}  // namespace grape::python::replay
