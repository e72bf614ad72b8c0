// Host memory and other resources run out, at each place where Grape asks for them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <sstream>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

constexpr char kFault[] = FAULT_PROGRAMS "/libfault_preload.so";

class Row04_OutOfMemory : public testing::TestWithParam<const char*> {
 protected:
  // How often libgrape.so makes each call in an undisturbed run.
  static std::map<std::string, int> undisturbed(const Folder& folder) {
    const std::string report = folder.in("report");
    const Result result = Command(folder, "job").with_grape().preload(kFault).set("FAULT_REPORT", report).run();
    EXPECT_TRUE(result.exited(0)) << result;
    std::map<std::string, int> counts;
    std::istringstream lines(content(report));
    std::string call;
    for (int count = 0; lines >> call >> count;) counts[call] = count;
    return counts;
  }

  static void expect_unharmed(const std::string& fault, const Result& plain) {
    SCOPED_TRACE(fault);
    Folder folder;
    const Result result = Command(folder, "job").with_grape().preload(kFault).set("FAULT_CALL", fault).run();
    EXPECT_EQ(result.status, plain.status) << result;
    EXPECT_EQ(result.out, plain.out) << result;
    EXPECT_LE(result.notices().size(), 2u) << result;
    EXPECT_EQ(result.notices().empty() ? "" : result.err.substr(0, 7), result.notices().empty() ? "" : "grape: ");
    // What there is of a trace can be read.
    for (const std::string& path : folder.traces()) {
      const Trace trace = read_trace(path);
      EXPECT_TRUE(trace.readable || trace.headless) << trace.error;
    }
  }
};

TEST_P(Row04_OutOfMemory, AtAnyCallLeavesTheProgramAsItWas) {
  const std::string call = GetParam();
  Folder folder;
  const Result plain = Command(folder, "job").run();
  ASSERT_TRUE(plain.exited(0)) << plain;
  auto counts = undisturbed(folder);
  const int count = counts[call];
  if (call == "malloc" || call == "mmap" || call == "pthread_create") {
    ASSERT_GT(count, 0) << "the fault was never met";
  }
  // Each place once; where there are very many, the first 150 and then every third.
  std::vector<int> places;
  for (int n = 1; n <= count + 1; n += n < 150 ? 1 : 3) places.push_back(n);
  const std::string how = call == "pthread_create" ? "EAGAIN" : "ENOMEM";
  for_each_of(static_cast<int>(places.size()), [&](int i) {
    expect_unharmed(call + ":" + std::to_string(places[static_cast<std::size_t>(i)]) + ":" + how, plain);
  });
}

TEST_P(Row04_OutOfMemory, ForGoodLeavesTheProgramAsItWas) {
  const std::string call = GetParam();
  Folder folder;
  const Result plain = Command(folder, "job").run();
  const int count = undisturbed(folder)[call];
  const std::string how = call == "pthread_create" ? "+:EAGAIN" : "+:ENOMEM";
  std::vector<int> places;
  for (int n = 1; n <= count; n += n < 20 ? 1 : 7) places.push_back(n);
  for_each_of(static_cast<int>(places.size()), [&](int i) {
    expect_unharmed(call + ":" + std::to_string(places[static_cast<std::size_t>(i)]) + how, plain);
  });
}

INSTANTIATE_TEST_SUITE_P(Calls, Row04_OutOfMemory,
                         testing::Values("malloc", "calloc", "realloc", "mmap", "pthread_create"));

TEST(Row04_AddressSpace, LimitedLeavesTheProgramAsItWas) {
  // The simulated driver reserves address space too, so the limits start where the program itself still runs.
  int ran = 0;
  for (rlim_t megabytes = 64; megabytes <= 1u << 20; megabytes *= 2) {
    const auto limit = [megabytes] {
      const rlimit limits{megabytes << 20, megabytes << 20};
      setrlimit(RLIMIT_AS, &limits);
    };
    Folder folder;
    const Result plain = Command(folder, "job").prepare(limit).run();
    if (!plain.exited(0)) continue;
    ++ran;
    // The recorder's buffers are 128 MiB of address space: the program must have room for itself beside them.
    const Result result = Command(folder, "job").with_grape().prepare(limit).run();
    EXPECT_TRUE(result.exited(0) || megabytes < 1024) << megabytes << " MiB: " << result;
    if (result.exited(0)) {
      EXPECT_EQ(result.out, plain.out);
    }
  }
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace grape::faults
