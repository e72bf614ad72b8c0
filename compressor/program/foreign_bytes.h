// Chooses the bytes that a shadow replay tries where an earlier process had other bytes than this one. The earlier
// process's bytes may be an address, a handle or an index. In this process they may mean anything, and a kernel that
// uses them as a pointer ends the program.
#pragma once

#include <cstdint>
#include <functional>

namespace grape::program {

// What a process has at an address: nothing, a range without access (the driver reserves one for the device's memory),
// data, or code of the host.
enum class HostPlace : std::uint8_t { kNone, kReserved, kData, kCode };
using HostPlaces = std::function<HostPlace(std::uint64_t address)>;

// Bit i: byte i is not the same.
std::uint8_t different_bytes(std::uint64_t a, std::uint64_t b);

struct Replacement {
  std::uint64_t value = 0;
  std::uint8_t bytes = 0;  // bit i: byte i is another one than before, and so tried
};

// In place of `own`, where an earlier process had `other` in `bytes`; neither is an address that Grape knows. `place`:
// of `own`, taken for an address.
// - What may be an address in both gets one of `harmless` memory, of which there are 4 GiB (else nothing is tried).
// - Four bytes that are a small number in both may be an index: they get a smaller one. Eight may be the handle of a
//   texture or a function, and are not tried.
// - All else is no address and no index in one process at least. If it is none, it is one in no process; the bytes of
//   `other` are tried.
// - What would have to become larger or an address is not tried: 0, -1, and addresses with equal upper halves, unless
//   there is nothing at this one.
Replacement careful_replacement(std::uint64_t own, std::uint64_t other, std::uint8_t bytes, HostPlace place,
                                std::uint64_t harmless);

}  // namespace grape::program
