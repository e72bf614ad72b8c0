// Each kernel strides over its work with all threads of a row of blocks (%d30: this thread's first unit, %d31: the
// stride). Plain PTX of sm_50, which every driver translates for its device.
#include "shim/replay/own_kernels.h"

namespace grape::replay {

#define GRAPE_STRIDE                   \
  "  mov.u32 %r20, %ctaid.x;\n"        \
  "  mov.u32 %r21, %ntid.x;\n"         \
  "  mov.u32 %r22, %tid.x;\n"          \
  "  mov.u32 %r23, %nctaid.x;\n"       \
  "  mul.wide.u32 %d30, %r20, %r21;\n" \
  "  cvt.u64.u32 %d31, %r22;\n"        \
  "  add.u64 %d30, %d30, %d31;\n"      \
  "  mul.wide.u32 %d31, %r23, %r21;\n"

// clang-format off
const char kOwnKernels[] =
R"(.version 7.0
.target sm_50
.address_size 64

.visible .entry grape_copy(.param .u64 to, .param .u64 from, .param .u64 bytes)
{
  .reg .pred %p<4>;
  .reg .b32 %r<24>;
  .reg .b64 %d<32>;
  ld.param.u64 %d0, [to];
  ld.param.u64 %d1, [from];
  ld.param.u64 %d2, [bytes];
  cvta.to.global.u64 %d0, %d0;
  cvta.to.global.u64 %d1, %d1;
)" GRAPE_STRIDE R"(
  mov.u64 %d3, 0;                  // bytes that the wide loops do
  or.b64 %d4, %d0, %d1;
  and.b64 %d5, %d4, 15;
  setp.eq.u64 %p0, %d5, 0;
  @%p0 bra BY_16;
  and.b64 %d5, %d4, 3;
  setp.eq.u64 %p0, %d5, 0;
  @%p0 bra BY_4;
  bra.uni BY_1;

BY_16:
  and.b64 %d3, %d2, -16;
  shl.b64 %d6, %d30, 4;
  shl.b64 %d7, %d31, 4;
NEXT_16:
  setp.ge.u64 %p1, %d6, %d3;
  @%p1 bra BY_1;
  add.u64 %d8, %d1, %d6;
  ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%d8];
  add.u64 %d9, %d0, %d6;
  st.global.v4.u32 [%d9], {%r0, %r1, %r2, %r3};
  add.u64 %d6, %d6, %d7;
  bra NEXT_16;

BY_4:
  and.b64 %d3, %d2, -4;
  shl.b64 %d6, %d30, 2;
  shl.b64 %d7, %d31, 2;
NEXT_4:
  setp.ge.u64 %p1, %d6, %d3;
  @%p1 bra BY_1;
  add.u64 %d8, %d1, %d6;
  ld.global.u32 %r0, [%d8];
  add.u64 %d9, %d0, %d6;
  st.global.u32 [%d9], %r0;
  add.u64 %d6, %d6, %d7;
  bra NEXT_4;

BY_1:
  add.u64 %d6, %d3, %d30;
NEXT_1:
  setp.ge.u64 %p1, %d6, %d2;
  @%p1 bra DONE;
  add.u64 %d8, %d1, %d6;
  ld.global.u8 %r0, [%d8];
  add.u64 %d9, %d0, %d6;
  st.global.u8 [%d9], %r0;
  add.u64 %d6, %d6, %d31;
  bra NEXT_1;
DONE:
  ret;
}

.visible .entry grape_fill(.param .u64 to, .param .u64 value, .param .u64 element, .param .u64 width,
                           .param .u64 height, .param .u64 pitch)
{
  .reg .pred %p<4>;
  .reg .b32 %r<24>;
  .reg .b64 %d<32>;
  ld.param.u64 %d0, [to];
  ld.param.u64 %d1, [value];
  ld.param.u64 %d2, [element];
  ld.param.u64 %d3, [width];
  ld.param.u64 %d4, [height];
  ld.param.u64 %d5, [pitch];
  cvta.to.global.u64 %d0, %d0;
  mul.lo.u64 %d3, %d3, %d2;        // bytes of a row
  cvt.u32.u64 %r0, %d1;            // four bytes of the pattern
  setp.eq.u64 %p0, %d2, 4;
  @%p0 bra PATTERN;
  setp.eq.u64 %p0, %d2, 2;
  @%p0 bra HALVES;
  and.b32 %r0, %r0, 0xff;
  mul.lo.u32 %r0, %r0, 0x01010101;
  bra.uni PATTERN;
HALVES:
  and.b32 %r0, %r0, 0xffff;
  mul.lo.u32 %r0, %r0, 0x00010001;
PATTERN:
)" GRAPE_STRIDE R"(
  shl.b64 %d6, %d31, 4;
  mov.u32 %r1, %ctaid.y;
  cvt.u64.u32 %d7, %r1;            // the row
  mov.u32 %r1, %nctaid.y;
  cvt.u64.u32 %d8, %r1;

ROW:
  setp.ge.u64 %p0, %d7, %d4;
  @%p0 bra DONE;
  mul.lo.u64 %d9, %d7, %d5;
  add.u64 %d9, %d0, %d9;           // where it begins
  mov.u64 %d10, 0;
  and.b64 %d11, %d9, 15;
  setp.ne.u64 %p1, %d11, 0;
  @%p1 bra BYTES;
  and.b64 %d10, %d3, -16;
  shl.b64 %d11, %d30, 4;
NEXT_16:
  setp.ge.u64 %p1, %d11, %d10;
  @%p1 bra BYTES;
  add.u64 %d12, %d9, %d11;
  st.global.v4.u32 [%d12], {%r0, %r0, %r0, %r0};
  add.u64 %d11, %d11, %d6;
  bra NEXT_16;
BYTES:
  add.u64 %d11, %d10, %d30;
NEXT_1:
  setp.ge.u64 %p1, %d11, %d3;
  @%p1 bra NEXT_ROW;
  cvt.u32.u64 %r2, %d11;           // which byte of the pattern
  and.b32 %r2, %r2, 3;
  shl.b32 %r2, %r2, 3;
  shr.u32 %r2, %r0, %r2;
  add.u64 %d12, %d9, %d11;
  st.global.u8 [%d12], %r2;
  add.u64 %d11, %d11, %d31;
  bra NEXT_1;
NEXT_ROW:
  add.u64 %d7, %d7, %d8;
  bra ROW;
DONE:
  ret;
}

.visible .entry grape_hash(.param .u64 at, .param .u64 bytes, .param .u64 sum)
{
  .reg .pred %p<4>;
  .reg .b32 %r<24>;
  .reg .b64 %d<32>;
  ld.param.u64 %d0, [at];
  ld.param.u64 %d1, [bytes];
  ld.param.u64 %d2, [sum];
  cvta.to.global.u64 %d0, %d0;
  cvta.to.global.u64 %d2, %d2;
)" GRAPE_STRIDE R"(
  shl.b64 %d3, %d30, 3;            // this thread's word begins here
  shl.b64 %d4, %d31, 3;
  and.b64 %d5, %d0, 7;
  setp.eq.u64 %p0, %d5, 0;         // aligned
  mov.u64 %d6, 0;                  // the sum
NEXT:
  setp.ge.u64 %p1, %d3, %d1;
  @%p1 bra ADD;
  sub.u64 %d7, %d1, %d3;           // bytes from here
  add.u64 %d8, %d0, %d3;
  @!%p0 bra BYTES;
  setp.lt.u64 %p2, %d7, 8;
  @%p2 bra BYTES;
  ld.global.u64 %d9, [%d8];
  bra MIX;
BYTES:
  min.u64 %d7, %d7, 8;
  mov.u64 %d9, 0;
  mov.u64 %d10, 0;
NEXT_BYTE:
  add.u64 %d11, %d8, %d10;
  ld.global.u8 %d12, [%d11];
  cvt.u32.u64 %r0, %d10;
  shl.b32 %r0, %r0, 3;
  shl.b64 %d12, %d12, %r0;
  or.b64 %d9, %d9, %d12;
  add.u64 %d10, %d10, 1;
  setp.lt.u64 %p2, %d10, %d7;
  @%p2 bra NEXT_BYTE;
MIX:
  shr.u64 %d10, %d3, 3;
  add.u64 %d10, %d10, 1;           // the word's number, from 1
  mul.lo.u64 %d10, %d10, 0x9E3779B97F4A7C15;
  xor.b64 %d9, %d9, %d10;
  shr.u64 %d10, %d9, 30;
  xor.b64 %d9, %d9, %d10;
  mul.lo.u64 %d9, %d9, 0xBF58476D1CE4E5B9;
  shr.u64 %d10, %d9, 27;
  xor.b64 %d9, %d9, %d10;
  mul.lo.u64 %d9, %d9, 0x94D049BB133111EB;
  shr.u64 %d10, %d9, 31;
  xor.b64 %d9, %d9, %d10;
  add.u64 %d6, %d6, %d9;
  add.u64 %d3, %d3, %d4;
  bra NEXT;
ADD:
  red.global.add.u64 [%d2], %d6;
  ret;
}
)";
// clang-format on

}  // namespace grape::replay
