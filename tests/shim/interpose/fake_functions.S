// The fake driver's functions: count, and return what was asked for. Weak, so that fake_driver.cc may do better.
        .text
        .set    row, 0
#define GRAPE_HOOK(p_base, p_symbol, p_version, p_pfn, p_thread, p_class, p_action, p_arguments, ...) \
        .weak p_symbol; .type p_symbol, @function; .p2align 4; p_symbol: endbr64; \
        lock incq fake_counts + 8 * row(%rip); movl fake_result(%rip), %eax; ret; \
        .size p_symbol, . - p_symbol; .set row, row + 1;
#include "shim/driver/hooks.def"
        .section .note.GNU-stack, "", @progbits
