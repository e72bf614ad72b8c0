#include "python_hooks/proof/cached_proofs.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include "compressor/cache/adopt.h"
#include "compressor/cache/keeper.h"
#include "python_hooks/replay/signature.h"
#include "python_hooks/scopes/frame_names.h"
#include "python_hooks/torch/torch_symbols.h"
#include "python_hooks/walk/portable.h"
#include "python_hooks/walk/walker.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/build_id.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/record/thread_log.h"

namespace grape::python::proof {
namespace {

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
  text += driver::machine();
  add_line(text, "python", g_api.Py_GetVersion());
  // A TorchVersion, whose text is not kept as a str's own.
  Object* torch = module_member("torch", "__version__");
  const char* version = torch != nullptr && is_text(torch) ? g_api.PyUnicode_AsUTF8AndSize(torch, nullptr) : nullptr;
  if (version == nullptr) g_api.PyErr_Clear();
  add_line(text, "torch", version != nullptr ? version : "");
  return text;
}

void say(const char* line) { log_line(LogLevel::kWarning, "%s", line); }

std::atomic<CachedProofs*> g_proofs{nullptr};

bool kernels_of(const program::Program& program, std::vector<cache::Digest>& digests) {
  for (const program::FunctionInfo& function : program.functions) {
    digests.emplace_back();
    if (kernel_digest(function, digests.back())) continue;
    log_line(LogLevel::kDebug, "GRAPE_CACHE: where the code of %s comes from is not known", function.name.c_str());
    return false;
  }
  return true;
}

}  // namespace

bool kernel_digest(const program::FunctionInfo& function, cache::Digest& digest) {
  static auto& known = *new std::unordered_map<std::uint64_t, cache::Digest>;  // zeros: not known
  static std::uint32_t known_epoch = 0;
  const std::uint32_t epoch = record::g_module_epoch.load(std::memory_order_acquire);
  if (epoch != known_epoch) known.clear();
  known_epoch = epoch;
  const auto [place, added] = known.try_emplace(function.handle);
  if (added && !driver::kernel_content(function.handle, place->second)) place->second = {};
  digest = place->second;
  return digest != cache::Digest();
}

CachedProofs* CachedProofs::instance() noexcept {
  static CachedProofs* const proofs = []() -> CachedProofs* {
    if (config().cache[0] == '\0' || config().mode != Mode::kReplay) return nullptr;
    try {
      static auto& made = *new CachedProofs;
      cache::Keeper::Options options;
      options.folder = config().cache;
      options.environment = environment();
      options.say = say;
      made.keeper_ = cache::Keeper::open(std::move(options));
      if (made.keeper_ == nullptr) return nullptr;
      made.keeper_->write_in_background();
      g_proofs.store(&made);
      return &made;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }();
  return proofs;
}

CachedProofs* CachedProofs::in_use() noexcept { return g_proofs.load(); }

cache::Digest CachedProofs::name(const replay::Region& region, const replay::Call& call) {
  replay::Call portable = call;
  if (replay::depends_on_kept_casts(region, call) || !call.numbers.empty()) return {};
  if (!torch::take_portable_dispatch_state(portable.dispatch)) return {};
  const std::vector<std::uint8_t>& state = region.evidence.guard->bytes();
  cache::Digest& module = modules_[XXH3_64bits(state.data(), state.size())];
  if (module == cache::Digest()) {
    walk::Walk walk = walk::Walk::portable(true);
    if (!walk.add(call.root, "module") || (call.self != nullptr && !walk.add(call.self, "module"))) return {};
    module = walk::digest_of(walk.bytes());
  }
  walk::Walk walk = walk::Walk::portable(false);
  if (!replay::write_call(portable, walk)) return {};
  const bool other_stream = call.work.context != nullptr && call.work.stream != 0;
  walk.add_bytes(&other_stream, sizeof other_stream);
  walk.add_bytes(&module, sizeof module);
  walk.add_bytes(region.evidence.shared.data(), region.evidence.shared.size() * sizeof(std::uint64_t));
  return walk::digest_of(walk.bytes());
}

bool CachedProofs::knows(const replay::Region& region, const cache::Digest& signature) const noexcept {
  return signature != cache::Digest() && keeper_->knows(region.name, signature);
}

std::unique_ptr<program::Program> CachedProofs::find(const cache::Call& call, const cache::Digest& outcome,
                                                     const program::Program& observed, std::string& why) {
  const cache::Entry* entry = keeper_->find(call);
  if (entry == nullptr || entry->outcome != outcome) {
    why = entry == nullptr ? "it ran other code" : "it returned or changed something else";
    return nullptr;
  }
  auto program = std::make_unique<program::Program>();
  std::vector<cache::Digest> kernels;
  if (!kernels_of(observed, kernels)) {
    why = "where the code of a kernel comes from is not known";
    return nullptr;
  }
  if (!keeper_->earlier().programs->get(entry->id, *program, why)) return nullptr;
  return cache::adopt(*program, observed, kernels, why) ? std::move(program) : nullptr;
}

void CachedProofs::note_use(const cache::Call& call) {
  ++used_;
  keeper_->note_use(call);
}

void CachedProofs::refute(const cache::Call& call) { keeper_->refute(call); }

void CachedProofs::refute_region(const replay::Region& region) noexcept {
  try {
    keeper_->refute_region(region.name);
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::kError, "no memory to take %s out of GRAPE_CACHE", region.name.c_str());
  }
}

void CachedProofs::add(const cache::Call& call, const cache::Digest& outcome, const program::Program& observed,
                       const program::PaddingKnowledge& padding) {
  std::vector<cache::Digest> kernels;
  if (call.signature == cache::Digest() || !kernels_of(observed, kernels)) return;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    for (const auto& [word, known] : padding.known(observed.functions[i])) {
      keeper_->add_padding({kernels[i], word, known.seen, known.own, known.varies});
    }
  }
  if (keeper_->find(call) != nullptr) return;  // it is there
  program::Program program = observed;
  for (std::size_t i = 0; i < kernels.size(); ++i) program.functions[i].handle = cache::handle_of(kernels[i]);
  cache::Entry entry;
  entry.call = call;
  entry.outcome = outcome;
  entry.last_used = static_cast<std::uint64_t>(std::time(nullptr));
  keeper_->add(std::move(entry), std::move(program), scopes::place_of_frame);
}

program::PaddingKnowledge::Words CachedProofs::padding_of(const program::FunctionInfo& function) {
  program::PaddingKnowledge::Words words;
  cache::Digest digest;
  if (!kernel_digest(function, digest)) return words;
  const auto& all = keeper_->earlier().padding;
  const auto first = std::lower_bound(all.begin(), all.end(), digest,
                                      [](const cache::Padding& one, const cache::Digest& d) { return one.kernel < d; });
  for (auto at = first; at != all.end() && at->kernel == digest; ++at) {
    words[at->word] = {at->seen, at->own, at->varies};
  }
  return words;
}

report::CacheReport CachedProofs::report() const {
  const cache::Keeper& keeper = *keeper_;
  return {keeper.path(), keeper.earlier().entries.size(), used_, keeper.added()};
}

void CachedProofs::write() noexcept {
  try {
    keeper_->write();
  } catch (const std::bad_alloc&) {
    notice("no memory to write to GRAPE_CACHE");
  }
}

}  // namespace grape::python::proof
