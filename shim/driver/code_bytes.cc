#include "shim/driver/code_bytes.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace grape::driver {
namespace {

constexpr std::uint64_t kMostCode = std::uint64_t{4} << 30;
constexpr std::uint64_t kMostText = 64 << 20;

// fatbinary_section.h: what nvcc puts around a fat binary. Version 2 names further ones to be linked with it.
struct FatWrapper {
  std::int32_t magic, version;
  const void* data;
};
constexpr std::int32_t kFatWrapperMagic = 0x466243b1;
// A fat binary's own beginning, as cuobjdump reads it.
struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // behind the header
};
constexpr std::uint32_t kFatMagic = 0xba55ed50;

// Up to the end of what its headers describe.
std::uint64_t elf_bytes(const void* image) noexcept {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
  if (header.e_shnum == 0) return 0;
  const auto* bytes = static_cast<const std::uint8_t*>(image);
  const std::uint64_t sections_end = header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  std::uint64_t end = std::max(sections_end, header.e_phoff + std::uint64_t{header.e_phnum} * header.e_phentsize);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end <= kMostCode ? end : 0;
}

}  // namespace

std::uint64_t code_bytes(const void*& image) noexcept {
  std::uint32_t magic = 0;
  // Text may be shorter than any header; no header has a zero in its first four bytes.
  const std::size_t some = strnlen(static_cast<const char*>(image), sizeof magic);
  if (some < sizeof magic) return some;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == static_cast<std::uint32_t>(kFatWrapperMagic)) {
    FatWrapper wrapper;
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.version != 1 || wrapper.data == nullptr) return 0;
    image = wrapper.data;
    std::memcpy(&magic, image, sizeof magic);
    if (magic != kFatMagic) return 0;
  }
  if (magic == kFatMagic) {
    FatHeader header;
    std::memcpy(&header, image, sizeof header);
    return header.bytes <= kMostCode ? header.header_bytes + header.bytes : 0;
  }
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) return elf_bytes(image);
  const auto first = static_cast<unsigned char>(magic & 0xff);
  const bool text = first == '\t' || first == '\n' || first == '\r' || (first >= ' ' && first < 0x7f);
  if (!text) return 0;
  const std::size_t length = strnlen(static_cast<const char*>(image), kMostText);
  return length < kMostText ? length : 0;
}

}  // namespace grape::driver
