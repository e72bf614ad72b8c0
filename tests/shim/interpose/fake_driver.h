// A libcuda.so.1 that does nothing: each function of the list counts its calls and returns what the test wants. For
// tests of the doors and of what the wrappers record; it computes nothing (tests/simcuda does).
#pragma once

#include <cstdint>

#include "shim/interpose/rows.h"

namespace grape::interpose::test {

// Handles that the fake driver knows are pointers to these.
struct FakeFunction {
  const char* name;
  bool kernel;  // a CUkernel
  std::uint32_t parameter_count;
  struct {
    std::uint64_t offset, bytes;
  } parameters[8];
};

struct FakeNode {
  int type;  // CUgraphNodeType
  const void* params;
  std::uint64_t params_bytes;
};

struct FakeGraph {
  std::uint32_t node_count;
  FakeNode* const* nodes;
  std::uint32_t edge_count;
  FakeNode* const* from;
  FakeNode* const* to;
};

struct FakeState {
  std::uint64_t* counts;   // calls per row
  int* result;             // what every function of the list returns
  int newest = 13000;      // functions introduced later are not there
  int capture_status = 0;  // CUstreamCaptureStatus of every stream
  std::uint64_t captures_asked = 0;
  std::uint64_t names_asked = 0;
  std::uint64_t unknown_calls = 0;
  std::uint64_t query_calls = 0;
  std::uint64_t newer_calls = 0;
  void* out_handle = nullptr;  // what cuStreamCreate and cuGraphInstantiateWithFlags hand out
};

using FakeStateFunction = FakeState* (*)();

}  // namespace grape::interpose::test
