// The application captures a graph of its own, on a stream and a fork of it, while another thread works outside it.
//   capture global|thread|relaxed
#include <thread>

#include "client.h"

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "global";
  const CUstreamCaptureMode mode = name == "relaxed"  ? CU_STREAM_CAPTURE_MODE_RELAXED
                                   : name == "thread" ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                                      : CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUcontext context = client::open_context();
  CUmodule module = client::load(
      client::image({"captured = _Z3mixPmmm", "forked = _Z3mixPmmm", "outside = _Z3mixPmmm", "late = _Z3mixPmmm"}));
  CUfunction captured = client::function(module, "captured"), forked = client::function(module, "forked");
  CUfunction outside = client::function(module, "outside"), late = client::function(module, "late");
  CUstream stream = nullptr, side = nullptr, other = nullptr;
  CUevent fork = nullptr, join = nullptr;
  for (CUstream* s : {&stream, &side, &other}) CHECK(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
  for (CUevent* e : {&fork, &join}) CHECK(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
  const CUdeviceptr one = client::new_word(1), two = client::new_word(1), three = client::new_word(1);
  const std::uint64_t factor = 31;

  CHECK(cuStreamBeginCapture(stream, mode));
  CHECK(client::launch(captured, stream, one, factor, std::uint64_t{1}));
  CHECK(cuEventRecord(fork, stream));
  CHECK(cuStreamWaitEvent(side, fork, 0));
  CHECK(client::launch(forked, side, two, factor, std::uint64_t{2}));
  std::thread([&] {
    CHECK(cuCtxSetCurrent(context));
    for (std::uint64_t i = 0; i < 5; ++i) CHECK(client::launch(outside, other, three, factor, i));
  }).join();
  CHECK(client::launch(outside, other, three, factor, std::uint64_t{5}));
  // A kernel that is first seen under capture.
  CHECK(client::launch(late, stream, one, factor, std::uint64_t{3}));
  CHECK(cuEventRecord(join, side));
  CHECK(cuStreamWaitEvent(stream, join, 0));
  CHECK(client::launch(captured, stream, one, factor, std::uint64_t{4}));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cuGraphLaunch(exec, stream));
  CHECK(client::launch(captured, stream, one, factor, std::uint64_t{5}));  // not captured
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuStreamSynchronize(other));
  std::printf("%llu %llu %llu\n", static_cast<unsigned long long>(client::read_word(one)),
              static_cast<unsigned long long>(client::read_word(two)),
              static_cast<unsigned long long>(client::read_word(three)));
  return 0;
}
