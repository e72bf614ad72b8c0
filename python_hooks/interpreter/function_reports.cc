#include "python_hooks/interpreter/function_reports.h"

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_reports.h"
#include "python_hooks/interpreter/last_watcher.h"

namespace grape::python {
namespace {

constexpr int kCreated = 0, kDestroyed = 1;  // PyFunction_WatchEvent

std::uint64_t g_changes = 0;

// Called for each function that is made or ends as well. Runs nothing of Python's, and cannot fail.
int report(int event, Object*, Object*) noexcept {
  if (event != kCreated && event != kDestroyed) ++g_changes;
  return 0;
}

// Each change is reported.
constexpr const char* kMade = "def f(a=1, *, b=2): pass\ndef g(a=3, *, b=4): pass\n";
constexpr const char* kChanges[] = {"f.__code__ = g.__code__\n", "f.__defaults__ = g.__defaults__\n",
                                    "f.__kwdefaults__ = g.__kwdefaults__\n"};

bool run(const char* source, Object* names) noexcept {
  const Reference done(run_text(source, names));
  return static_cast<bool>(done);
}

bool are_reported() noexcept {
  const Reference names(g_api.PyDict_New());
  if (!names) return false;
  bool right = run(kMade, names.get());
  for (const char* change : kChanges) {
    const std::uint64_t before = g_changes;
    right = right && run(change, names.get()) && g_changes != before;
  }
  g_api.PyDict_Clear(names.get());  // its functions refer to it
  g_api.PyErr_Clear();
  return right;
}

bool ask() noexcept {
  if (g_api.PyFunction_AddWatcher == nullptr || g_api.PyFunction_ClearWatcher == nullptr) return false;
  const KeepException keep;
  const int number = take_last_watcher(g_api.PyFunction_AddWatcher, g_api.PyFunction_ClearWatcher, &report);
  if (number < 0) return false;
  if (DictReports::possible() && are_reported()) return true;
  if (g_api.PyFunction_ClearWatcher(number) != 0) g_api.PyErr_Clear();
  return false;
}

}  // namespace

bool functions_report() noexcept {
  static bool asked = false, known = false;
  if (!asked) {
    asked = true;
    known = ask();
  }
  return known && DictReports::possible();
}

std::uint64_t function_changes() noexcept { return g_changes; }

}  // namespace grape::python
