#include "shim/virtual_execs/node_launch.h"

#include <algorithm>
#include <new>

#include "shim/driver/real_driver.h"
#include "shim/graphs/node_parameters.h"
#include "shim/virtual_execs/node_words.h"

namespace grape::virtual_execs {
namespace {

namespace real = driver::real;
using program::Program;

enum class Use { kPass, kDrop, kUnknown };

// What a node's attribute is to a launch into a stream. Launches there follow each other in full: what would let the
// next one begin earlier is left out.
Use use_of(CUlaunchAttributeID id, cuuint64_t flags) noexcept {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return Use::kPass;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 ? Use::kPass : Use::kDrop;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return Use::kDrop;
    default:
      return Use::kUnknown;
  }
}

bool fits(const Shape& shape, const NodeShape& node) noexcept {
  if (node.context != nullptr && node.context != shape.context) return false;
  for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
    if (use_of(shape.attributes[node.attributes_at + i].id, shape.flags) == Use::kUnknown) return false;
  }
  return true;
}

bool on_device(CUmemorytype type, CUdeviceptr address) noexcept {
  if (type == CU_MEMORYTYPE_DEVICE) return true;
  unsigned told = 0;
  return type == CU_MEMORYTYPE_UNIFIED &&
         real::call_cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         told == CU_MEMORYTYPE_DEVICE;
}

class Launcher {
 public:
  Launcher(const Shape& shape, const Program& program) : shape_(shape), program_(program) {}
  CUresult launch(std::size_t index, CUstream stream) {
    stream_ = stream;
    const NodeShape& node = shape_.nodes[index];
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) return kernel(node, program_.nodes[index]);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) return copy(program_.nodes[index]);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) return memset(program_.nodes[index]);
    return CUDA_SUCCESS;
  }

 private:
  CUresult kernel(const NodeShape& node, const program::RecordedNode& recorded) {
    const CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_of(node, program_, recorded, parameters_);
    attributes_.clear();
    for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
      const CUlaunchAttribute& attribute = shape_.attributes[node.attributes_at + i];
      if (use_of(attribute.id, shape_.flags) == Use::kPass) attributes_.push_back(attribute);
    }
    CUlaunchConfig config{};
    config.gridDimX = params.gridDimX;
    config.gridDimY = params.gridDimY;
    config.gridDimZ = params.gridDimZ;
    config.blockDimX = params.blockDimX;
    config.blockDimY = params.blockDimY;
    config.blockDimZ = params.blockDimZ;
    config.sharedMemBytes = params.sharedMemBytes;
    config.hStream = stream_;
    config.attrs = attributes_.data();
    config.numAttrs = static_cast<unsigned>(attributes_.size());
    // The driver takes a CUkernel for a function, too.
    CUfunction function = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
    return real::call_cuLaunchKernelEx(&config, function, params.kernelParams, params.extra);
  }

  CUresult copy(const program::RecordedNode& recorded) {
    const CUDA_MEMCPY3D_v2 params = copy_of(program_, recorded);
    return real::call_cuMemcpy3DAsync_v2(&params, stream_);
  }

  CUresult memset(const program::RecordedNode& recorded) {
    const CUDA_MEMSET_NODE_PARAMS_v1 params = memset_of(program_, recorded);
    if (params.elementSize == 1) {
      const auto value = static_cast<unsigned char>(params.value);
      return real::call_cuMemsetD8Async(params.dst, value, params.width, stream_);
    }
    if (params.elementSize == 2) {
      const auto value = static_cast<unsigned short>(params.value);
      return real::call_cuMemsetD16Async(params.dst, value, params.width, stream_);
    }
    return real::call_cuMemsetD32Async(params.dst, params.value, params.width, stream_);
  }

  const Shape& shape_;
  const Program& program_;
  CUstream stream_ = nullptr;
  graphs::NodeParameters parameters_;
  std::vector<CUlaunchAttribute> attributes_;
};

// One launch of a graph, step by step.
class ProgramRun {
 public:
  ProgramRun(const Shape& shape, const Program& program, const Sequence& sequence,
             const std::vector<std::uint32_t>& disabled, CUstream stream, const Lanes* lanes)
      : launcher_(shape, program),
        sequence_(sequence),
        disabled_(disabled),
        application_(stream),
        lanes_(lanes != nullptr ? *lanes : none_) {}

  bool launched_any() const noexcept { return launched_any_; }

  CUresult run(std::size_t& done) noexcept {
    CUresult result = CUDA_SUCCESS;
    try {
      for (done = 0; done < sequence_.steps.size() && result == CUDA_SUCCESS;) {
        const Step& step = sequence_.steps[done];
        const CUstream stream = lanes_.stream(step.lane, application_);
        result = begin(step, stream);
        if (result != CUDA_SUCCESS) break;
        ++done;
        if (step.event != Step::kNone) result = lanes_.record(step.event, stream);
      }
    } catch (const std::bad_alloc&) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
  }

 private:
  CUresult begin(const Step& step, CUstream stream) {
    for (std::uint32_t i = 0; i < step.wait_count; ++i) {
      const CUresult result = lanes_.wait(stream, sequence_.waits[step.waits_at + i]);
      if (result != CUDA_SUCCESS) return result;
    }
    if (step.node == Step::kNone || std::binary_search(disabled_.begin(), disabled_.end(), step.node)) {
      return CUDA_SUCCESS;
    }
    const CUresult result = launcher_.launch(step.node, stream);
    launched_any_ = launched_any_ || result == CUDA_SUCCESS;
    return result;
  }

  Launcher launcher_;
  const Sequence& sequence_;
  const std::vector<std::uint32_t>& disabled_;
  CUstream application_;
  const Lanes none_{nullptr};
  const Lanes& lanes_;
  bool launched_any_ = false;
};

}  // namespace

bool can_be_launched(const Shape& shape) noexcept {
  return std::all_of(shape.nodes.begin(), shape.nodes.end(), [&](const NodeShape& node) { return fits(shape, node); });
}

bool can_be_launched(const Shape& shape, const Program& program) noexcept {
  if (program.nodes.size() != shape.nodes.size()) return false;
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    if (shape.nodes[i].type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      const CUDA_MEMCPY3D_v2 copy = copy_of(program, program.nodes[i]);
      if (!on_device(copy.srcMemoryType, copy.srcDevice) || !on_device(copy.dstMemoryType, copy.dstDevice))
        return false;
    }
    if (shape.nodes[i].type == CU_GRAPH_NODE_TYPE_MEMSET && memset_of(program, program.nodes[i]).height > 1)
      return false;
  }
  return true;
}

CUresult launch_nodes(const Shape& shape, const Program& program, const Sequence& sequence,
                      const std::vector<std::uint32_t>& disabled, CUstream stream, const Lanes* lanes,
                      std::size_t& done) noexcept {
  ProgramRun steps(shape, program, sequence, disabled, stream, lanes);
  const CUresult result = steps.run(done);
  if (result == CUDA_SUCCESS) return result;
  if (!steps.launched_any()) {
    done = 0;
    return result;
  }
  if (lanes != nullptr) lanes->join(stream);
  const auto left = sequence.steps.begin() + static_cast<std::ptrdiff_t>(done);
  const auto nothing = [](const Step& step) { return step.node == Step::kNone; };
  return std::all_of(left, sequence.steps.end(), nothing) ? CUDA_SUCCESS : result;
}

}  // namespace grape::virtual_execs
