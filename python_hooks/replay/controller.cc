#include "python_hooks/replay/controller.h"

#include <xxhash.h>

#include <new>

#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/observe.h"
#include "python_hooks/replay/run.h"
#include "shim/interpose/captures.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"
#include "shim/replay/copy_memory.h"

namespace grape::python::replay {
namespace {

constexpr std::size_t kCountMask = ~(std::size_t{1} << 63);  // of a vectorcall's argument count
constexpr std::size_t kMostSignatures = 8192;                // of one region
constexpr std::uint32_t kMostFailures = 3;                   // observations of one signature in a row
constexpr std::uint32_t kMostRegionFailures = 4;             // the same of a region none of whose calls is proven

__thread bool t_inside __attribute__((tls_model("initial-exec")));

// While a region is decided on, and while its call runs as always, calls of its children are none of ours.
class Inside {
 public:
  Inside() noexcept { t_inside = true; }
  ~Inside() noexcept { t_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

class Busy {
 public:
  explicit Busy(Region& region) noexcept : region_(region) { region_.busy = true; }
  ~Busy() noexcept { region_.busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Region& region_;
};

// The module's state is what proofs stand on: another state, and they are void.
bool ensure_guard(Region& region, Object* module) {
  if (region.guard != nullptr && region.guard->holds()) return true;
  if (region.guard != nullptr) {
    log_line(LogLevel::kInfo, "%s: changed: %s", region.name.c_str(), region.guard->change().c_str());
  }
  region.signatures.clear();
  std::string reason;
  region.guard = state::ModuleGuard::take(module, reason);
  if (region.guard != nullptr) return true;
  region.reason = reason;
  region.given_up = true;
  return false;
}

bool write_signature(const Call& call, state::Walk& walk) {
  const std::size_t positional = call.count & kCountMask;
  walk.add_bytes(call.dispatch.bytes, call.dispatch.byte_count);
  walk.add_bytes(&positional, sizeof positional);
  for (std::size_t i = 1; i < positional; ++i) {
    if (!walk.add(call.arguments[i], "argument")) return false;
  }
  if (call.names == nullptr) return true;
  if (!walk.add(call.names, "keywords")) return false;
  const std::ptrdiff_t keywords = field<std::ptrdiff_t>(call.names, 16);
  for (std::ptrdiff_t i = 0; i < keywords; ++i) {
    if (!walk.add(call.arguments[positional + static_cast<std::size_t>(i)], "keyword argument")) return false;
  }
  return true;
}

// Null: too many, or two that share a hash.
Signature* find_signature(Region& region, const std::vector<std::uint8_t>& bytes) {
  const std::uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  std::unique_ptr<Signature>& signature = region.signatures[hash];
  if (signature == nullptr) {
    signature = std::make_unique<Signature>();
    signature->bytes = bytes;
  }
  return signature->bytes == bytes ? signature.get() : nullptr;
}

Object* run_eagerly(Region& region, const Call& call) {
  const double begin = now();
  Object* result = call.eager(call.function, call.arguments, call.count, call.names);
  region.eager_seconds += now() - begin;
  ++region.eager_timed;
  return result;
}

// The first signature of a region is observed at once; others when they come again, unless some were proven already:
// a program that never repeats itself pays for nothing.
bool worth_observing(const Region& region, const Signature& signature) {
  if (signature.stage == Stage::kGivenUp || region.signatures.size() > kMostSignatures) return false;
  return signature.calls > 1 || region.signatures.size() == 1 || region.replayed != 0;
}

void judge(Region& region, Signature& signature) {
  if (signature.failures >= kMostFailures) {
    signature.stage = Stage::kGivenUp;
    signature.observation = nullptr;
  }
  if (region.replayed == 0 && region.failures >= kMostRegionFailures) {
    region.given_up = true;
    region.signatures.clear();
    log_line(LogLevel::kInfo, "%s: not replayed as a whole: %s", region.name.c_str(), region.reason.c_str());
  }
}

Object* decide(Region& region, Call& call) {
  const double began = now();
  const char* blocked = nullptr;
  state::Walk walk(false);
  call.walk = &walk;
  if (!state::take_dispatch_state(call.dispatch, blocked) || !write_signature(call, walk)) {
    region.reason = blocked != nullptr ? blocked : walk.reason();
    ++region.fell_back;
    return run_eagerly(region, call);
  }
  const double walked = now();
  if (!ensure_guard(region, call.arguments[0])) return nullptr;
  const double guarded = now();
  if (walk.extents().empty() && region.guard->extents().empty()) {
    region.given_up = true;  // nothing on a GPU here
    return nullptr;
  }
  Signature* signature = find_signature(region, walk.bytes());
  if (signature == nullptr) return run_eagerly(region, call);
  ++signature->calls;
  if (signature->stage == Stage::kProven) {
    Object* result = nullptr;
    const double looked_up = now();
    switch (run(region, *signature->proven, call, result)) {
      case Ran::kReplayed:
        ++region.replayed;
        region.parts.guards += guarded - walked;
        region.parts.signature += looked_up - began - (guarded - walked);
        region.replay_seconds += now() - began;
        return result;
      case Ran::kOther:
        region.reason = "a value that the host reads differs from the one in the proof";
        ++region.fell_back;
        return run_eagerly(region, call);
      case Ran::kNotNow:
        ++region.fell_back;
        return run_eagerly(region, call);
      case Ran::kFailed:
        signature->stage = Stage::kGivenUp;
        signature->proven = nullptr;
        region.reason = "the driver refused its graph";
        ++region.fell_back;
        return run_eagerly(region, call);
      case Ran::kStale:
        signature->stage = Stage::kSeen;
        signature->proven = nullptr;
        break;
    }
  }
  if (!worth_observing(region, *signature)) return run_eagerly(region, call);
  Object* result = observe(region, *signature, call);
  judge(region, *signature);
  return result;
}

}  // namespace

bool enabled() noexcept { return config().mode == Mode::kReplay && state::load_torch_api() && lifecycle::active(); }

Object* call(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names) {
  if (t_inside || (count & kCountMask) == 0 || !lifecycle::active() || interpose::g_captures.load() > 0) {
    return eager(function, arguments, count, names);
  }
  grape::replay::CopyMemory::instance().note_call();
  Region* region = region_of(arguments[0]);
  if (region == nullptr || region->given_up || region->busy) return eager(function, arguments, count, names);
  ++region->calls;
  Object* result = nullptr;
  {
    const Inside inside;
    const Busy busy(*region);
    Call one{eager, function, arguments, count, names, {}, nullptr};
    try {
      result = decide(*region, one);
    } catch (const std::bad_alloc&) {
      // Thrown before anything ran: what comes after keeps its own.
      lifecycle::give_up("out of memory");
      region->given_up = true;
    }
  }
  // Given up just now, before anything ran: from here on its children may be regions.
  const bool nothing_ran = result == nullptr && region->given_up && g_api.PyErr_Occurred() == nullptr;
  return nothing_ran ? eager(function, arguments, count, names) : result;
}

}  // namespace grape::python::replay
