// How far images of device code reach: those that nvcc 13.0 made agreed with the sizes of their files.
#include "shim/driver/code_bytes.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace grape::driver {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <typename T>
void append(Bytes& to, const T& value) {
  to.resize(to.size() + sizeof value);
  std::memcpy(to.data() + to.size() - sizeof value, &value, sizeof value);
}

std::uint64_t bytes_of(const void* image) { return code_bytes(image); }

Bytes fat_binary(std::uint64_t content, std::uint16_t header = 16) {
  Bytes image;
  append(image, std::uint32_t{0xba55ed50});
  append(image, std::uint16_t{1});
  append(image, header);
  append(image, content);
  image.resize(header + 64, 7);
  return image;
}

TEST(CodeBytes, Text) {
  EXPECT_EQ(bytes_of(".version 9.0\n"), 13u);
  EXPECT_EQ(bytes_of("//\n"), 3u);
  EXPECT_EQ(bytes_of(""), 0u);
  EXPECT_EQ(bytes_of("\x01\x02\x03\x04 is no text"), 0u);
}

TEST(CodeBytes, FatBinaries) {
  EXPECT_EQ(bytes_of(fat_binary(64).data()), 80u);
  EXPECT_EQ(bytes_of(fat_binary(64, 24).data()), 88u);
  EXPECT_EQ(bytes_of(fat_binary(~std::uint64_t{0}).data()), 0u) << "not credible";
}

TEST(CodeBytes, WrappersStandForWhatTheyWrap) {
  const Bytes inner = fat_binary(64);
  for (const std::int32_t version : {1, 2}) {
    Bytes wrapper;
    append(wrapper, std::int32_t{0x466243b1});
    append(wrapper, version);
    append(wrapper, inner.data());
    append(wrapper, std::uint64_t{0});
    const void* image = wrapper.data();
    EXPECT_EQ(code_bytes(image), version == 1 ? 80u : 0u) << "version 2 has more to be linked with";
    EXPECT_EQ(image, version == 1 ? inner.data() : wrapper.data());
  }
}

TEST(CodeBytes, Cubins) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  Elf64_Shdr none{}, code{}, zeros{};
  code.sh_type = SHT_PROGBITS;
  code.sh_offset = 1000;
  code.sh_size = 24;
  zeros.sh_type = SHT_NOBITS;  // takes no place
  zeros.sh_offset = 5000;
  zeros.sh_size = 1 << 20;
  Bytes image;
  append(image, header);
  for (const Elf64_Shdr& section : {none, code, zeros}) append(image, section);
  image.resize(1024);
  EXPECT_EQ(bytes_of(image.data()), 1024u);
  // Where the table comes last.
  code.sh_offset = 8;
  image.clear();
  append(image, header);
  for (const Elf64_Shdr& section : {none, code, zeros}) append(image, section);
  EXPECT_EQ(bytes_of(image.data()), sizeof header + 3 * sizeof(Elf64_Shdr));
  // Or that of the program headers, as in what nvcc makes.
  header.e_phoff = image.size();
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  std::memcpy(image.data(), &header, sizeof header);
  image.resize(image.size() + 2 * sizeof(Elf64_Phdr));
  EXPECT_EQ(bytes_of(image.data()), image.size());
  image[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(bytes_of(image.data()), 0u);
}

}  // namespace
}  // namespace grape::driver
