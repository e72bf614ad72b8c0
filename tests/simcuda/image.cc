#include "image.h"

#include <cstdio>
#include <cstring>
#include <sstream>

#include "memory.h"

namespace simcuda {

namespace {

constexpr char kMagic[] = "SIMCUDA MODULE 1";

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

CUresult add_global(const std::string& line, CUcontext context, Image* image) {
  std::istringstream words(line);
  std::string keyword;
  std::string name;
  std::size_t bytes = 0;
  if (!(words >> keyword >> name >> bytes) || bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  Global global;
  global.bytes = bytes;
  Memory& memory = Memory::instance();
  SIM_TRY(memory.allocate(bytes, MemoryKind::kDevice, context, nullptr, &global.address));
  std::memset(memory.translate(global.address, bytes), 0, bytes);
  image->globals[name] = global;
  return CUDA_SUCCESS;
}

CUresult add_kernel(const std::string& line, Image* image) {
  const auto equals = line.find(" = ");
  const std::string name = trimmed(line.substr(0, equals));
  const std::string builtin = equals == std::string::npos ? name : trimmed(line.substr(equals + 3));
  auto kernel = std::make_shared<Kernel>();
  kernel->name = name;
  kernel->builtin = find_builtin(builtin);
  if (kernel->builtin == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
  kernel->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
  kernel->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
  kernel->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
  kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
  image->kernels.emplace_back(name, std::move(kernel));
  return CUDA_SUCCESS;
}

// PTX is not executed: its entries must be built-in kernels, by name.
CUresult parse_ptx(const std::string& text, Image* image) {
  const std::string entry = ".entry ";
  for (std::size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at)) {
    at += entry.size();
    if (add_kernel(text.substr(at, text.find('(', at) - at), image) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_PTX;
  }
  return image->kernels.empty() ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
}

}  // namespace

CUresult parse_image(const char* text, CUcontext context, Image* image) {
  if (std::strncmp(text, ".version ", 9) == 0) return parse_ptx(text, image);
  const std::size_t magic = std::strlen(kMagic);
  if (std::strncmp(text, kMagic, magic) != 0 || (text[magic] != '\n' && text[magic] != '\0')) {
    return CUDA_ERROR_INVALID_IMAGE;  // a cubin, say
  }
  std::istringstream lines(text + magic);
  std::string line;
  while (std::getline(lines, line)) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const CUresult result =
        line.compare(0, 7, "global ") == 0 ? add_global(line, context, image) : add_kernel(line, image);
    if (result != CUDA_SUCCESS) {
      release_image(*image);
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult read_image_file(const char* path, std::string* text) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file)) text->append(buffer, count);
  std::fclose(file);
  return CUDA_SUCCESS;
}

void release_image(const Image& image) {
  for (const auto& entry : image.globals) {
    Memory::instance().release(entry.second.address, MemoryKind::kDevice, MemoryKind::kDevice);
  }
}

CUresult get_global(const Image& image, CUdeviceptr* address, size_t* bytes, const char* name) {
  if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = image.globals.find(name);
  if (found == image.globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = found->second.address;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
