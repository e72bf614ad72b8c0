// make_trace KIND OUT: writes a small trace for the Python tests here.
//   sample      two calls of a module on two streams, blocks that move, a host read, graphs of the application
//   hostile     names with control characters, quotes, formulas, invalid UTF-8, tags
//   ranges      two ranges, between which a block is freed and taken again
//   unended     sample without its end chunk
//   bomb        a kernel name whose demangled form would be enormous
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/tools/trace_maker.h"

namespace grape::tools {
namespace {

constexpr std::uint64_t kSide = 0x5000;

void define(TraceMaker& t) {
  t.function(1, "_Z4axpyifPKfPf", {{0, 4}, {4, 4}, {8, 8}, {16, 8}});
  t.function(2, "_ZN2at6native4fillIfEEvPT_", {{0, 8}});
  t.code(1, "/home/user/train.py", "main");
  t.code(2, "/usr/lib/python3/torch/nn/linear.py", "Linear.forward");
  t.frame(1, 0, 1, 12);
  t.frame(2, 1, 2, 125);
  t.native_frame(1, 0, 0x2724a, "/usr/lib/libc.so.6", "");
  t.native_frame(2, 1, 0x1f2, "/opt/torch/lib/libtorch.so", "_ZN2at6native4callEv");
  t.scope(1, "", "model:Net");
  t.scope(2, "fc1", "torch.nn:Linear");
  t.scope(3, "fc2", "torch.nn:Linear");
}

// Fill on a side stream while axpy runs on the default stream, then both join; a copy to the host at the end.
void forward(TraceMaker& t, std::uint64_t call, std::uint64_t weight, std::uint64_t output, float factor) {
  t.begin(1, call, 1);
  t.alloc(output, 4096, 2);
  t.begin(2, 0, 2);
  TraceMaker::Launch first{1, 0, packed(std::int32_t{16}, factor, weight, output + 64), 2};
  first.native_frame = 2;
  t.launch(first);
  t.end(2, 0);
  t.call(TraceMaker::kEventRecord, {0xe1, 0});
  t.call(TraceMaker::kEventWait, {kSide, 0xe1, 0});
  t.begin(3, 0, 2);
  TraceMaker::Launch fill{2, kSide, packed(output), 2, 8, 128};
  fill.attributes = {packed(std::uint32_t{4}, std::uint32_t{0}, std::uint32_t{2}, std::uint32_t{1}, std::uint32_t{1})};
  t.launch(fill);
  t.end(3, 0);
  t.launch({1, 0, packed(std::int32_t{16}, 1.0f, weight, output), 2});
  t.call(TraceMaker::kEventRecord, {0xe2, kSide});
  t.call(TraceMaker::kEventWait, {0, 0xe2, 0});
  t.call(TraceMaker::kMemset, {output, 0, 4, 0});
  t.call(TraceMaker::kCopyToHost, {0x7fff0000, output, 4, 0});
  t.call(TraceMaker::kSynchronize, {0});
  t.end(1, call);
  t.free(output, 4096);
}

void sample(TraceMaker& t) {
  define(t);
  t.call(TraceMaker::kStreamCreate, {kSide, 1});
  t.alloc(0x10000, 1024);
  t.launch({1, 0, packed(std::int32_t{1}, 0.0f, std::uint64_t{0x10000}, std::uint64_t{0x10000})});
  forward(t, 1, 0x10000, 0x20000, 2.0f);
  forward(t, 2, 0x10000, 0x30000, 3.0f);
  // Captured, failed, and in graphs of the application.
  TraceMaker::Launch captured{2, kSide, packed(std::uint64_t{0x10000})};
  captured.flags = trace::kFlagCaptured;
  t.launch(captured);
  TraceMaker::Launch failed{2, 0, packed(std::uint64_t{0x10000})};
  failed.result = 700;
  t.launch(failed);
  t.exec_node(0xaa, 0, 0, 1, packed(std::int32_t{1}, 0.0f, std::uint64_t{0x10000}, std::uint64_t{0x10000}));
  t.exec_node(0xaa, 1, 2, 0);
  t.exec_node(0xaa, 2, 0, 2, packed(std::uint64_t{0x10000}));
  t.exec_node(0xaa, 3, 0, 2, packed(std::uint64_t{0x10000}));
  t.exec_edges(0xaa, {{0, 1}, {1, 2}, {1, 3}});
  for (int i = 0; i < 4; ++i) t.call(TraceMaker::kGraphLaunch, {0xaa, 0});
  t.call(TraceMaker::kGraphLaunch, {0xaa, 0}, 1);
  t.call(TraceMaker::kExecDestroy, {0xaa});
  t.exec_node(0xaa, 0, 0, 2, packed(std::uint64_t{0x10000}));
  for (int i = 0; i < 2; ++i) t.call(TraceMaker::kGraphLaunch, {0xaa, 0});
  t.thread(2).call(TraceMaker::kCopyToDevice, {0x10000, 0x7fff1000, 512, 0});
  t.end_chunk.unhandled = {{"cuSomethingNew", 3}};
  t.end_chunk.notices = {"a notice"};
}

void hostile(TraceMaker& t) {
  const std::string bad = "=cmd|' /C calc'!A0\x1b[31m\"<script>alert(1)</script>\\\n\xff\xe2\x80\xae,end";
  t.meta.command = bad;
  t.meta.host = bad;
  t.function(1, bad, {{0, 8}});
  t.code(1, "/tmp/" + bad, bad);
  t.frame(1, 0, 1, 1);
  t.native_frame(1, 0, 1, bad, bad);
  t.scope(1, bad, bad);
  t.begin(1, 1, 1);
  TraceMaker::Launch launch{1, 0, packed(std::uint64_t{1}), 1};
  launch.native_frame = 1;
  t.launch(launch);
  t.end(1, 1);
  t.end_chunk.unhandled = {{bad, 1}};
  t.end_chunk.notices = {bad};
}

void ranges(TraceMaker& t) {
  define(t);
  t.meta.ranges = true;
  for (const std::uint64_t call : {1, 2}) {
    t.call(TraceMaker::kProfilerStart, {});
    t.begin(1, call, 1);
    if (call == 1) t.alloc(0x10000, 1024);
    // The second one is another graph.
    for (std::uint64_t i = 0; i < call; ++i) t.launch({2, 0, packed(std::uint64_t{0x10000}), 2});
    t.alloc(0x20000, 64);
    t.end(1, call);
    t.call(TraceMaker::kProfilerStop, {});
  }
}

// Each substitution holds the one before twice.
void bomb(TraceMaker& t) {
  std::string name = "_Z1fI1AIiiE";
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string last = "S0_";
  for (std::size_t i = 0; i < 34; ++i) {
    name += "S_I" + last + last + "E";
    last = std::string("S") + digits[i + 1] + "_";
  }
  t.function(1, name + "Evv");
  t.launch({1});
}

}  // namespace
}  // namespace grape::tools

int main(int argc, char** argv) {
  using namespace grape::tools;
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_trace sample|hostile|ranges|unended|bomb OUT.grape\n");
    return 2;
  }
  TraceMaker maker;
  const std::string kind = argv[1];
  if (kind == "hostile") {
    hostile(maker);
  } else if (kind == "ranges") {
    ranges(maker);
  } else if (kind == "bomb") {
    bomb(maker);
  } else if (kind == "sample" || kind == "unended") {
    sample(maker);
  } else {
    return 2;
  }
  return maker.write(argv[2], kind != "unended") ? 0 : 1;
}
