#include "tests/shim/interpose/program.h"

using grape::interpose::test::finish;
using grape::interpose::test::open_driver;

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  EXPECT(library != nullptr, arguments[1]);
  if (library == nullptr) return finish();
  if (auto* allocate = reinterpret_cast<void (*)()>(dlsym(library, "allocate_blocks"))) {
    allocate();
    EXPECT(*static_cast<long*>(dlsym(library, "g_reported_bytes")) == 64, "all three reports reach the real function");
  }
  void* driver = open_driver();
  std::uint64_t address = 0;
  reinterpret_cast<int (*)(void*, std::size_t)>(dlsym(driver, "cuMemAlloc_v2"))(&address, 512);
  return finish();
}
