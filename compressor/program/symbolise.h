// Addresses become symbols. A word that points into a block which is alive at that node is (block, offset); words are
// looked at where they are 8-byte aligned in the packed parameters. Inputs win over statics where both hold. A pointer
// one past a block's end belongs to no block, unless another one begins there. Core: no CUDA, no Python.
//
// A word of a kernel with known layout is a pointer only if all of its 8 bytes lie in one parameter: two ints side by
// side are none, whatever they look like. The memory of an input is an input for as long as the block around it lives;
// what else lies in that block is static.
//
// Random words: PyTorch hands a generator's state to kernels by value, as at::PhiloxCudaState {seed (8 bytes), offset
// (8 bytes), offset in a captured graph (4 or 8 bytes), captured (1 byte)}, alone or inside a larger struct. So a seed
// is told from a plain number by its neighbours, all within one parameter: the next word is an offset that the
// generator passed through in this run, and the five bytes after it are zero, nothing being captured. With small seeds
// (0, 42) that can still be a coincidence; compare() asks for runs with different states, where a plain number gives
// itself away.
#pragma once

#include <functional>

#include "compressor/program/program.h"

namespace grape::program {

// Is a word of the kernel's parameters known to be a pointer, at times?
using IsPointer = std::function<bool(const FunctionInfo& function, std::uint32_t word)>;

// Never fails on a consistent record; `record` may be moved from. O(words * log(blocks)). Throws std::bad_alloc only.
// Attributes' bytes beyond their value are zeroed: callers leave them as they were on their stack.
//
// A word of a struct that looks like a pointer may be a number of four bytes or less, and behind it the upper half of
// an address that lay there before. It is a stray if its lower half is a small number, and another launch of the kernel
// has a number in that place. It is one, too, if all other launches have such words there, and no block begins at it.
// Where no other launch tells, it is one if the number is very small. `is_pointer` may know better.
Program symbolise(RegionRecord record, const IsPointer& is_pointer = nullptr);

}  // namespace grape::program
