// Counting thunks for driver functions without a wrapper: whatever the signature, add one and go on.
#include "shim/interpose/unhandled_slots.h"

        .text
        .globl  grape_thunks
        .hidden grape_thunks
        .type   grape_thunks, @function
        .p2align 4
grape_thunks:
        .cfi_startproc
        .set    slot, 0
        .rept   GRAPE_UNHANDLED_SLOTS
        .p2align 5
        endbr64
        lock incq grape_thunk_counts + 8 * slot(%rip)
        jmp     *grape_thunk_targets + 8 * slot(%rip)
        .set    slot, slot + 1
        .endr
        .cfi_endproc
        .size   grape_thunks, . - grape_thunks
        .section .note.GNU-stack, "", @progbits
