#include "compressor/program/launch_attributes.h"

#include <cstddef>
#include <cstring>

#include "compressor/program/record.h"

namespace grape::program {
namespace {

constexpr std::size_t kValueAt = 8;  // after the id and four bytes of padding

// Bytes of the value, by CUlaunchAttributeID; 0: not known.
constexpr std::uint8_t kValueBytes[] = {
    0,   // IGNORE: nothing to be cleaned for
    28,  // ACCESS_POLICY_WINDOW
    4,   // COOPERATIVE
    4,   // SYNCHRONIZATION_POLICY
    12,  // CLUSTER_DIMENSION
    4,   // CLUSTER_SCHEDULING_POLICY_PREFERENCE
    4,   // PROGRAMMATIC_STREAM_SERIALIZATION
    16,  // PROGRAMMATIC_EVENT
    4,   // PRIORITY
    2,   // MEM_SYNC_DOMAIN_MAP
    4,   // MEM_SYNC_DOMAIN
    12,  // PREFERRED_CLUSTER_DIMENSION
    12,  // LAUNCH_COMPLETION_EVENT
    0,   // DEVICE_UPDATABLE_KERNEL_NODE: has an out-field
    4,   // PREFERRED_SHARED_MEMORY_CARVEOUT
};

}  // namespace

void clean_attribute(std::uint8_t* attribute) {
  std::uint32_t id = 0;
  std::memcpy(&id, attribute, sizeof id);
  const std::size_t bytes = id < sizeof kValueBytes ? kValueBytes[id] : 0;
  if (bytes == 0) return;
  std::memset(attribute + sizeof id, 0, kValueAt - sizeof id);
  std::memset(attribute + kValueAt + bytes, 0, kAttributeBytes - kValueAt - bytes);
}

}  // namespace grape::program
