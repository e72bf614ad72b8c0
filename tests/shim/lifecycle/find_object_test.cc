#include "shim/lifecycle/find_object.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <stdexcept>

#include "shim/lifecycle/elf_lookup.h"

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

using FindObject = int (*)(void*, dl_find_object*);

void here() {}

TEST(FindObject, WalkAgreesWithGlibc) {
  const auto real = reinterpret_cast<FindObject>(grape::lifecycle::symbol_in("libc.so.6", "_dl_find_object"));
  if (real == nullptr) GTEST_SKIP() << "this glibc is older than 2.35";
  void* const addresses[] = {reinterpret_cast<void*>(&here), dlsym(RTLD_DEFAULT, "printf"),
                             dlsym(RTLD_DEFAULT, "malloc"), dlsym(RTLD_DEFAULT, "pthread_create")};
  for (void* address : addresses) {
    ASSERT_NE(address, nullptr);
    dl_find_object theirs{};
    dl_find_object ours{};
    ASSERT_EQ(real(address, &theirs), 0);
    ASSERT_EQ(grape::lifecycle::find_object_by_walk(address, &ours), 0);
    EXPECT_EQ(ours.dlfo_eh_frame, theirs.dlfo_eh_frame);
    EXPECT_GE(address, ours.dlfo_map_start);
    EXPECT_LT(address, ours.dlfo_map_end);
  }
}

TEST(FindObject, NothingHoldsAHeapOrNullAddress) {
  int on_stack = 0;
  dl_find_object result{};
  EXPECT_EQ(grape::lifecycle::find_object_by_walk(&on_stack, &result), -1);
  EXPECT_EQ(grape::lifecycle::find_object_by_walk(nullptr, &result), -1);
}

// libgcc is linked statically here, as in libgrape.so, so unwinding goes through our definition.
TEST(FindObject, ExceptionsUnwindThroughIt) {
  EXPECT_THROW(throw std::runtime_error("thrown and caught"), std::runtime_error);
}

}  // namespace
#endif
