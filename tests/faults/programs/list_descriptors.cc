// No CUDA at all: prints what its descriptors lead to, and whether a library of Grape's is mapped.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 1;
  while (const dirent* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || descriptor == dirfd(folder)) continue;
    char target[4096] = "";
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0) continue;
    std::printf("%s%s\n", descriptor <= 2 ? "standard " : "other ", descriptor <= 2 ? entry->d_name : target);
  }
  closedir(folder);
  return 0;
}
