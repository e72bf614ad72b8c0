// Copies, fills and spreads stride over their work with all threads of a row of blocks (%d30: this thread's first unit,
// %d31: the stride). A spread holds numbers as their bits, and each of its blocks adds to the results in memory once. A
// hash has a block for each chunk, which loads 16 bytes at a time, four of them under way in each thread, and adds to
// the sum in memory once. Plain PTX of sm_50, which every driver translates for its device.
#include "shim/device/own_kernels.h"

namespace grape::device {

#define GRAPE_STRIDE                   \
  "  mov.u32 %r20, %ctaid.x;\n"        \
  "  mov.u32 %r21, %ntid.x;\n"         \
  "  mov.u32 %r22, %tid.x;\n"          \
  "  mov.u32 %r23, %nctaid.x;\n"       \
  "  mul.wide.u32 %d30, %r20, %r21;\n" \
  "  cvt.u64.u32 %d31, %r22;\n"        \
  "  add.u64 %d30, %d30, %d31;\n"      \
  "  mul.wide.u32 %d31, %r23, %r21;\n"

// Hashes: of a word and its key (%d11) into the sum (%d6), and the keys of the words that follow. Each step of the
// mixing can be undone, so that two memories that differ in one word only never have the same sum.
#define GRAPE_MIX(word)          \
  "  xor.b64 " word ", " word    \
  ", %d11;\n"                    \
  "  shr.u64 %d20, " word        \
  ", 30;\n"                      \
  "  xor.b64 " word ", " word    \
  ", %d20;\n"                    \
  "  mul.lo.u64 " word ", " word \
  ", 0xBF58476D1CE4E5B9;\n"      \
  "  shr.u64 %d20, " word        \
  ", 27;\n"                      \
  "  xor.b64 " word ", " word    \
  ", %d20;\n"                    \
  "  mul.lo.u64 " word ", " word \
  ", 0x94D049BB133111EB;\n"      \
  "  shr.u64 %d20, " word        \
  ", 31;\n"                      \
  "  xor.b64 " word ", " word    \
  ", %d20;\n"                    \
  "  add.u64 %d6, %d6, " word ";\n"
#define GRAPE_NEXT_KEY "  add.u64 %d11, %d11, 0x9E3779B97F4A7C15;\n"
#define GRAPE_NEXT_PAIR "  add.u64 %d11, %d11, %d12;\n"

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

.visible .entry grape_hash(.param .u64 chunks)
{
  .reg .pred %p<4>;
  .reg .b32 %r<24>;
  .reg .b64 %d<32>;
  .shared .align 8 .b8 sums[2048];
  ld.param.u64 %d20, [chunks];
  cvta.to.global.u64 %d20, %d20;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mul.wide.u32 %d21, %r0, 40;
  add.u64 %d20, %d20, %d21;        // this block's chunk
  ld.global.u64 %d0, [%d20];       // where it begins
  ld.global.u64 %d1, [%d20+8];     // its bytes
  ld.global.u64 %d2, [%d20+16];    // number of its first word
  ld.global.u64 %d3, [%d20+24];    // where the sum is
  ld.global.u64 %d4, [%d20+32];    // where the copy begins
  cvta.to.global.u64 %d0, %d0;
  cvta.to.global.u64 %d3, %d3;
  setp.ne.u64 %p0, %d4, 0;         // there is to be a copy
  cvta.to.global.u64 %d4, %d4;
  add.u64 %d2, %d2, 1;             // so that no word has number 0
  mov.u64 %d5, 0;                  // bytes that the wide loop does
  mov.u64 %d6, 0;                  // this thread's sum
  cvt.u64.u32 %d7, %r1;
  cvt.u64.u32 %d8, %r2;
  or.b64 %d19, %d0, %d4;
  and.b64 %d20, %d19, 15;
  setp.ne.u64 %p1, %d20, 0;
  @%p1 bra WORDS;

  shl.b64 %d13, %d8, 6;            // a round of all threads: four times 16 bytes each
  sub.u64 %d20, %d13, 1;
  and.b64 %d20, %d1, %d20;
  sub.u64 %d5, %d1, %d20;
  shl.b64 %d9, %d7, 4;
  shl.b64 %d10, %d8, 4;
  shl.b64 %d20, %d7, 1;
  add.u64 %d20, %d20, %d2;
  mul.lo.u64 %d11, %d20, 0x9E3779B97F4A7C15;  // the word's key
  shl.b64 %d20, %d8, 1;
  sub.u64 %d20, %d20, 1;
  mul.lo.u64 %d12, %d20, 0x9E3779B97F4A7C15;  // from a pair's second word to the next pair
NEXT_ROUND:
  setp.ge.u64 %p1, %d9, %d5;
  @%p1 bra WORDS;
  add.u64 %d20, %d0, %d9;
  add.u64 %d21, %d20, %d10;
  add.u64 %d22, %d21, %d10;
  add.u64 %d23, %d22, %d10;
  ld.global.v2.u64 {%d24, %d25}, [%d20];
  ld.global.v2.u64 {%d26, %d27}, [%d21];
  ld.global.v2.u64 {%d28, %d29}, [%d22];
  ld.global.v2.u64 {%d30, %d31}, [%d23];
  @!%p0 bra MIX_ROUND;
  add.u64 %d20, %d4, %d9;
  add.u64 %d21, %d20, %d10;
  add.u64 %d22, %d21, %d10;
  add.u64 %d23, %d22, %d10;
  st.global.v2.u64 [%d20], {%d24, %d25};
  st.global.v2.u64 [%d21], {%d26, %d27};
  st.global.v2.u64 [%d22], {%d28, %d29};
  st.global.v2.u64 [%d23], {%d30, %d31};
MIX_ROUND:
)" GRAPE_MIX("%d24") GRAPE_NEXT_KEY GRAPE_MIX("%d25") GRAPE_NEXT_PAIR
   GRAPE_MIX("%d26") GRAPE_NEXT_KEY GRAPE_MIX("%d27") GRAPE_NEXT_PAIR
   GRAPE_MIX("%d28") GRAPE_NEXT_KEY GRAPE_MIX("%d29") GRAPE_NEXT_PAIR
   GRAPE_MIX("%d30") GRAPE_NEXT_KEY GRAPE_MIX("%d31") GRAPE_NEXT_PAIR R"(
  add.u64 %d9, %d9, %d13;
  bra NEXT_ROUND;

WORDS:
  and.b64 %d20, %d19, 7;
  setp.eq.u64 %p1, %d20, 0;        // words are aligned
  shl.b64 %d9, %d7, 3;
  add.u64 %d9, %d9, %d5;
  shl.b64 %d10, %d8, 3;
NEXT_WORD:
  setp.ge.u64 %p2, %d9, %d1;
  @%p2 bra REDUCE;
  sub.u64 %d20, %d1, %d9;          // bytes from here
  add.u64 %d21, %d0, %d9;
  add.u64 %d22, %d4, %d9;
  @!%p1 bra BYTES;
  setp.lt.u64 %p2, %d20, 8;
  @%p2 bra BYTES;
  ld.global.u64 %d24, [%d21];
  @%p0 st.global.u64 [%d22], %d24;
  bra MIX_WORD;
BYTES:
  min.u64 %d20, %d20, 8;
  mov.u64 %d24, 0;
  mov.u64 %d23, 0;
NEXT_BYTE:
  add.u64 %d25, %d21, %d23;
  ld.global.u8 %d26, [%d25];
  add.u64 %d25, %d22, %d23;
  @%p0 st.global.u8 [%d25], %d26;
  cvt.u32.u64 %r0, %d23;
  shl.b32 %r0, %r0, 3;
  shl.b64 %d26, %d26, %r0;
  or.b64 %d24, %d24, %d26;
  add.u64 %d23, %d23, 1;
  setp.lt.u64 %p2, %d23, %d20;
  @%p2 bra NEXT_BYTE;
MIX_WORD:
  shr.u64 %d20, %d9, 3;
  add.u64 %d20, %d20, %d2;
  mul.lo.u64 %d11, %d20, 0x9E3779B97F4A7C15;
)" GRAPE_MIX("%d24") R"(
  add.u64 %d9, %d9, %d10;
  bra NEXT_WORD;

REDUCE:
  mov.u32 %r3, sums;
  shl.b32 %r4, %r1, 3;
  add.u32 %r3, %r3, %r4;
  st.shared.u64 [%r3], %d6;
HALF:
  shr.u32 %r2, %r2, 1;
  bar.sync 0;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra ADD;
  setp.ge.u32 %p2, %r1, %r2;
  @%p2 bra HALF_DONE;
  shl.b32 %r4, %r2, 3;
  add.u32 %r4, %r3, %r4;
  ld.shared.u64 %d20, [%r4];
  add.u64 %d6, %d6, %d20;
  st.shared.u64 [%r3], %d6;
HALF_DONE:
  bra.uni HALF;
ADD:
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  red.global.add.u64 [%d3], %d6;
DONE:
  ret;
}

.visible .entry grape_spread(.param .u64 one, .param .u64 other, .param .u64 count, .param .u64 element,
                             .param .u64 out)
{
  .reg .pred %p<7>;
  .reg .b16 %h<2>;
  .reg .b32 %r<24>;
  .reg .b64 %d<32>;
  .shared .align 8 .b8 parts[8192];  // of each thread: its four results
  ld.param.u64 %d0, [one];
  ld.param.u64 %d1, [other];
  ld.param.u64 %d2, [count];
  ld.param.u64 %d3, [element];
  ld.param.u64 %d4, [out];
  cvta.to.global.u64 %d0, %d0;
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d4, %d4;
  setp.eq.u64 %p0, %d3, 0;         // float
  setp.eq.u64 %p1, %d3, 1;         // double
  setp.eq.u64 %p2, %d3, 2;         // half; or else bfloat16
  mov.u32 %r0, 1;                  // from a number's index to its bytes
  @%p0 mov.u32 %r0, 2;
  @%p1 mov.u32 %r0, 3;
)" GRAPE_STRIDE R"(
  mov.u64 %d5, 0;                  // pairs that differ
  mov.u64 %d6, 0;                  // the greatest difference
  mov.u64 %d7, 0;                  // squares of the differences
  mov.u64 %d8, 0;                  // squares of the first memory's numbers
NEXT:
  setp.ge.u64 %p3, %d30, %d2;
  @%p3 bra NUMBERS;
  shl.b64 %d9, %d30, %r0;
  add.u64 %d10, %d0, %d9;
  add.u64 %d11, %d1, %d9;
  add.u64 %d30, %d30, %d31;
  @%p1 bra DOUBLES;
  @%p0 bra FLOATS;
  ld.global.u16 %h0, [%d10];
  ld.global.u16 %h1, [%d11];
  @%p2 bra HALVES;
  cvt.u32.u16 %r1, %h0;            // the upper half of a float
  cvt.u32.u16 %r2, %h1;
  shl.b32 %r1, %r1, 16;
  shl.b32 %r2, %r2, 16;
  bra WIDEN;
HALVES:
  cvt.f32.f16 %r1, %h0;
  cvt.f32.f16 %r2, %h1;
  bra WIDEN;
FLOATS:
  ld.global.u32 %r1, [%d10];
  ld.global.u32 %r2, [%d11];
WIDEN:
  cvt.f64.f32 %d12, %r1;
  cvt.f64.f32 %d13, %r2;
  bra COMPARE;
DOUBLES:
  ld.global.u64 %d12, [%d10];
  ld.global.u64 %d13, [%d11];
COMPARE:
  setp.nan.f64 %p3, %d12, %d12;
  setp.nan.f64 %p4, %d13, %d13;
  @!%p3 fma.rn.f64 %d8, %d12, %d12, %d8;
  setp.eq.f64 %p5, %d12, %d13;
  @%p5 bra NEXT;
  and.pred %p5, %p3, %p4;
  @%p5 bra NEXT;
  sub.rn.f64 %d14, %d12, %d13;
  abs.f64 %d14, %d14;
  or.pred %p5, %p3, %p4;
  @%p5 mov.u64 %d14, 0x7FF0000000000000;  // infinite
  add.u64 %d5, %d5, 1;
  max.f64 %d6, %d6, %d14;
  fma.rn.f64 %d7, %d14, %d14, %d7;
  bra NEXT;

NUMBERS:
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, parts;
  shl.b32 %r6, %r3, 5;
  add.u32 %r5, %r5, %r6;
  st.shared.u64 [%r5], %d5;
  st.shared.u64 [%r5+8], %d6;
  st.shared.u64 [%r5+16], %d7;
  st.shared.u64 [%r5+24], %d8;
HALF:
  shr.u32 %r4, %r4, 1;
  bar.sync 0;
  setp.eq.u32 %p3, %r4, 0;
  @%p3 bra ADD;
  setp.ge.u32 %p4, %r3, %r4;
  @%p4 bra HALF_DONE;
  shl.b32 %r6, %r4, 5;
  add.u32 %r6, %r5, %r6;
  ld.shared.u64 %d9, [%r6];
  ld.shared.u64 %d10, [%r6+8];
  ld.shared.u64 %d11, [%r6+16];
  ld.shared.u64 %d12, [%r6+24];
  add.u64 %d5, %d5, %d9;
  max.f64 %d6, %d6, %d10;
  add.rn.f64 %d7, %d7, %d11;
  add.rn.f64 %d8, %d8, %d12;
  st.shared.u64 [%r5], %d5;
  st.shared.u64 [%r5+8], %d6;
  st.shared.u64 [%r5+16], %d7;
  st.shared.u64 [%r5+24], %d8;
HALF_DONE:
  bra.uni HALF;
ADD:
  setp.ne.u32 %p3, %r3, 0;
  @%p3 bra DONE;
  setp.eq.u64 %p3, %d8, 0;
  @%p3 bra DIFFERENCES;
  cvt.rn.f32.f64 %r1, %d8;
  red.global.add.f32 [%d4+16], %r1;
DIFFERENCES:
  setp.eq.u64 %p3, %d5, 0;
  @%p3 bra DONE;
  red.global.add.u64 [%d4], %d5;
  cvt.rp.f32.f64 %r1, %d6;
  red.global.max.u32 [%d4+8], %r1;  // floats that are not negative are ordered as their bits
  cvt.rn.f32.f64 %r1, %d7;
  red.global.add.f32 [%d4+12], %r1;
DONE:
  ret;
}
)";
// clang-format on

}  // namespace grape::device
