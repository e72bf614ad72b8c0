#include "shim/lifecycle/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "shim/lifecycle/elf_lookup.h"

namespace grape::lifecycle {
namespace {

constexpr std::size_t kRounded = 3;  // parts of a note begin at multiples of four bytes

std::string in_hexadecimal(const std::uint8_t* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int digit : {bytes[i] >> 4, bytes[i] & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

std::string id_in_notes(const std::uint8_t* at, std::size_t left) {
  while (left >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const std::size_t name = (note.n_namesz + kRounded) & ~kRounded, content = (note.n_descsz + kRounded) & ~kRounded;
    const std::size_t bytes = sizeof note + name + content;
    if (bytes > left) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + sizeof note, "GNU", 4) == 0) {
      return in_hexadecimal(at + sizeof note + name, note.n_descsz);
    }
    at += bytes;
    left -= bytes;
  }
  return {};
}

int look(dl_phdr_info* info, std::size_t, void* data) {
  if (!holds(*info, reinterpret_cast<const void*>(&look))) return 0;
  auto& id = *static_cast<std::string*>(data);
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    id = id_in_notes(reinterpret_cast<const std::uint8_t*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(look, &id);
  return id;
}

}  // namespace grape::lifecycle
