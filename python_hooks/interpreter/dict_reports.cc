#include "python_hooks/interpreter/dict_reports.h"

#include <iterator>
#include <new>
#include <unordered_map>

#include "python_hooks/interpreter/last_watcher.h"

namespace grape::python {
namespace {

constexpr int kGone = 5;  // PyDict_EVENT_DEALLOCATED
// A program that changes a dictionary this often, while nobody asks for it, is not to pay for more reports.
constexpr std::uint64_t kMostReports = 1024;

// Who is told of which dictionary. Made with the watcher, and never freed: the interpreter reports until it is gone.
using Table = std::unordered_multimap<const Object*, DictReports*>;
Table* g_table = nullptr;
DictReports* g_restless = nullptr;  // has had too many reports

// Where the runtime counts the interpreters that were ever made, behind the first and the main one of their list. Found
// while there is one alone. Null: not found.
const std::int64_t* interpreters_made() noexcept {
  constexpr std::size_t kSearched = 512;
  const auto* runtime = reinterpret_cast<const std::uintptr_t*>(g_api._PyRuntime);
  const auto main = reinterpret_cast<std::uintptr_t>(g_api.PyInterpreterState_Main());
  const std::uintptr_t* found = nullptr;
  for (std::size_t i = 0; runtime != nullptr && i + 2 < kSearched; ++i) {
    if (runtime[i] != main || runtime[i + 1] != main || runtime[i + 2] != 1) continue;
    if (found != nullptr) return nullptr;
    found = runtime + i + 2;
  }
  return reinterpret_cast<const std::int64_t*>(found);
}

const std::int64_t* g_made = nullptr;
// Has there never been another interpreter? What runs there reports to that one's watchers.
bool is_alone() noexcept { return *g_made == 1; }

}  // namespace

struct DictWatcher {
  // Called in the middle of a change. Runs nothing of Python's, and cannot fail.
  static int report(int event, Object* dict, Object*, Object*) noexcept {
    const auto [first, last] = g_table->equal_range(dict);
    for (auto entry = first; entry != last; ++entry) entry->second->note(event == kGone);
    if (event == kGone) g_table->erase(first, last);
    return 0;
  }

  // The watcher's number; -1: there is none to be had.
  static int take() noexcept {
    if (g_api.PyDict_AddWatcher == nullptr || g_api.PyDict_ClearWatcher == nullptr || g_api.PyDict_Watch == nullptr ||
        g_api.PyDict_Unwatch == nullptr || (g_made = interpreters_made()) == nullptr) {
      return -1;
    }
    g_table = new (std::nothrow) Table;
    if (g_table == nullptr) return -1;
    return take_last_watcher(g_api.PyDict_AddWatcher, g_api.PyDict_ClearWatcher, &report);
  }

  static int number() noexcept {
    static const int known = take();
    return known;
  }

  // Outside of a report, where a dictionary can be watched no more.
  static int let_go(void*) noexcept {
    DictReports* restless = g_restless;
    g_restless = nullptr;
    if (restless == nullptr || shutting_down()) return 0;
    restless->clear();
    restless->give_up();
    return 0;
  }
};

void DictReports::note(bool gone) noexcept {
  lost_ = lost_ || gone;
  if (++count_ % kMostReports != 0 || g_restless != nullptr) return;
  g_restless = this;
  if (g_api.Py_AddPendingCall(&DictWatcher::let_go, nullptr) != 0) g_restless = nullptr;
}

bool DictReports::possible() noexcept { return DictWatcher::number() >= 0 && is_alone(); }

bool DictReports::add(Object* dict) noexcept {
  const int watcher = DictWatcher::number();
  if (!possible()) return false;
  Table::iterator entry;
  try {
    dicts_.push_back(dict);
    entry = g_table->emplace(dict, this);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (g_api.PyDict_Watch(watcher, dict) == 0) return true;
  g_api.PyErr_Clear();
  g_table->erase(entry);
  return false;
}

bool DictReports::changed() const noexcept { return count_ != 0 || lost_ || (!dicts_.empty() && !is_alone()); }

void DictReports::clear() noexcept {
  count_ = 0;
  lost_ = false;
  if (g_restless == this) g_restless = nullptr;
  if (dicts_.empty()) return;  // and there may be no table
  const KeepException keep;
  const bool unwatch = !shutting_down() && is_alone();
  for (Object* dict : dicts_) {
    const auto [first, last] = g_table->equal_range(dict);
    auto own = first;
    while (own != last && own->second != this) ++own;
    if (own == last) continue;  // it is gone
    const bool shared = std::next(first) != last;
    g_table->erase(own);
    if (!shared && unwatch && g_api.PyDict_Unwatch(DictWatcher::number(), dict) != 0) g_api.PyErr_Clear();
  }
  dicts_.clear();
}

}  // namespace grape::python
