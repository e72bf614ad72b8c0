// Programs at random, for tests of where blocks lie.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

struct RandomKind {
  std::uint32_t inputs = 0;  // at most: there from the begin
  bool outputs = false;      // does one of four blocks stay?
};

// Streams with forks and joins; blocks of all sizes, alive for some nodes, used by some of these.
Program random_program(std::mt19937& random, std::uint32_t nodes, std::uint32_t streams, RandomKind kind = {});

// The nodes that this one follows.
std::vector<std::uint32_t> edges_of(const Program& program, std::uint32_t node);

}  // namespace grape::program
