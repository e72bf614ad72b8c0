#include "tools/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "tools/text/escape.h"
#include "tools/text/failure.h"

#ifndef GRAPE_MULTIARCH
#define GRAPE_MULTIARCH "x86_64-linux-gnu"
#endif

namespace grape::tools {
namespace {

constexpr int kMostScripts = 5;
constexpr std::size_t kLongestShebang = 256;  // as the kernel reads it

// The first bytes of a file; empty where it cannot be read.
std::vector<unsigned char> read_at(const std::string& path, off_t offset, std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  const ssize_t got = pread(file, data.data(), bytes, offset);
  close(file);
  data.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return data;
}

std::string why_not_this_machine(const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "a 32-bit file; Grape is for x86-64";
  if (header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64) {
    return fmt::format("made for another machine (ELF machine {}); Grape is for x86-64", header.e_machine);
  }
  return "";
}

bool read_header(const std::string& path, Elf64_Ehdr& header) {
  const auto data = read_at(path, 0, sizeof header);
  std::memset(&header, 0, sizeof header);
  if (data.size() < EI_NIDENT || std::memcmp(data.data(), ELFMAG, SELFMAG) != 0) return false;
  std::memcpy(&header, data.data(), data.size());
  return true;
}

bool has_interpreter(const std::string& path, const Elf64_Ehdr& header) {
  const auto table =
      read_at(path, static_cast<off_t>(header.e_phoff), std::size_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (std::size_t at = 0; at + sizeof(Elf64_Phdr) <= table.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr segment;
    std::memcpy(&segment, table.data() + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

// Does the kernel run it in secure mode, where the loader drops LD_PRELOAD?
std::string why_secure(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "";
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) return "a setuid program";
  if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getgid()) {
    return "a setgid program";
  }
  char value[64];
  if (geteuid() != 0 && getxattr(path.c_str(), "security.capability", value, sizeof value) > 0) {
    return "a program with file capabilities";
  }
  return "";
}

// "#!/usr/bin/env -S python3 -u" → {"/usr/bin/env", "-S", "python3", "-u"}.
std::vector<std::string> shebang_words(const std::vector<unsigned char>& data) {
  std::vector<std::string> words(1);
  for (std::size_t i = 2; i < data.size() && data[i] != '\n' && data[i] != '\0'; ++i) {
    const bool space = data[i] == ' ' || data[i] == '\t' || data[i] == '\r';
    if (!space) words.back() += static_cast<char>(data[i]);
    if (space && !words.back().empty()) words.emplace_back();
  }
  return words;
}

std::string interpreter_of(const std::vector<unsigned char>& data) {
  const auto words = shebang_words(data);
  if (words[0].size() < 4 || words[0].substr(words[0].size() - 4) != "/env") return words[0];
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].empty() || words[i][0] == '-' || words[i].find('=') != std::string::npos) continue;
    int error = 0;
    return find_program(words[i], error);
  }
  return words[0];
}

}  // namespace

std::string find_program(const std::string& name, int& error) {
  error = ENOENT;
  const auto usable = [&error](const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
      if (errno == EACCES) error = EACCES;
      return false;
    }
    if (S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0) return true;
    error = EACCES;
    return false;
  };
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return usable(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path != nullptr ? path : "/bin:/usr/bin") + ":");  // an empty one counts
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (usable(candidate)) return candidate;  // NOLINT(performance-no-automatic-move): a path
  }
  return "";
}

std::string why_not_preloadable(const std::string& start) {
  std::string path = start;
  for (int i = 0; i < kMostScripts; ++i) {
    const std::string secure = why_secure(path);
    const auto fail = [&path](const std::string& why) { return fmt::format("{} is {}", escape_text(path), why); };
    if (!secure.empty() && i == 0) return fail(secure + ", into which the loader preloads nothing");
    const auto data = read_at(path, 0, kLongestShebang);
    if (data.size() >= 2 && data[0] == '#' && data[1] == '!') {
      path = interpreter_of(data);
      if (path.empty()) return "";
      continue;
    }
    Elf64_Ehdr header;
    if (!read_header(path, header)) return "";
    const std::string machine = why_not_this_machine(header);
    if (!machine.empty()) return fail(machine);
    if (!secure.empty()) return fail(secure + ", into which the loader preloads nothing");
    if (!has_interpreter(path, header)) return fail("a static binary, into which nothing can be preloaded");
    return "";
  }
  return "";
}

std::string why_not_library(const std::string& path) {
  Elf64_Ehdr header;
  if (access(path.c_str(), R_OK) != 0) return std::strerror(errno);
  if (!read_header(path, header)) return "not a shared library";
  const std::string machine = why_not_this_machine(header);
  if (!machine.empty()) return machine;  // NOLINT(performance-no-automatic-move): a short text
  if (header.e_type != ET_DYN) return "not a shared library";
  if (path.find_first_of(" :") != std::string::npos)
    return "its path has a space or colon, which LD_PRELOAD cannot hold";
  return "";
}

std::string own_path() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? std::string(path, static_cast<std::size_t>(bytes)) : "";
}

std::string find_library(const std::string& wanted) {
  std::string library = wanted;
  if (library.empty()) {
    const std::string self = own_path();
    const std::string folder = self.substr(0, self.rfind('/'));
    const std::string root = folder.substr(0, folder.rfind('/'));
    const std::string places[] = {root + "/lib/libgrape.so", root + "/lib/" GRAPE_MULTIARCH "/libgrape.so",
                                  root + "/lib64/libgrape.so", folder + "/libgrape.so"};
    for (const std::string& place : places) {
      if (library.empty() && access(place.c_str(), F_OK) == 0) library = place;
    }
    if (library.empty()) {
      throw Failure(fmt::format("not loaded: no libgrape.so at {} or beside; use --library", escape_text(places[0])));
    }
  }
  if (char* whole = realpath(library.c_str(), nullptr)) {
    library = whole;
    std::free(whole);
  }
  const std::string why = why_not_library(library);
  if (!why.empty()) throw Failure(fmt::format("not loaded: {}: {}", escape_text(library), why));
  return library;
}

}  // namespace grape::tools
