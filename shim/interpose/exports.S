// The driver's functions as this library exports them: each jumps to its row's wrapper.
        .text
        .globl  grape_exports_begin
        .hidden grape_exports_begin
        .p2align 4
grape_exports_begin:

// The parameters' names must differ from the words below.
        .set    row, 0
#define GRAPE_HOOK(p_base, p_symbol, ...) \
        .globl p_symbol; .type p_symbol, @function; .p2align 4; p_symbol: endbr64; \
        jmp *grape_linked + 8 * row(%rip); .size p_symbol, . - p_symbol; .set row, row + 1;
#include "shim/driver/hooks.def"

        .globl  grape_exports_end
        .hidden grape_exports_end
grape_exports_end:
        .section .note.GNU-stack, "", @progbits
