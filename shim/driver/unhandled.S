// Counting thunks for driver functions without a wrapper: whatever the signature, add one and go on. A handle of ours
// among the first two arguments is exchanged for what stands for it: the driver never sees one.
#include "shim/driver/unhandled_slots.h"

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
        leaq    grape_thunk_targets + 8 * slot(%rip), %r11
        jmp     grape_thunk_go
        .set    slot, slot + 1
        .endr
        .cfi_endproc
        .size   grape_thunks, . - grape_thunks

// Jumps to label `ours` if the register holds an address in the range of our handles.
.macro IF_OURS register, ours
        movq    grape_handle_range(%rip), %r10
        testq   %r10, %r10
        jz      9f
        negq    %r10
        addq    \register, %r10
        cmpq    $GRAPE_HANDLE_RANGE_BYTES, %r10
        jb      \ours
.endm

// Exchanges the register, whose value is pushed at `offset` here; all other arguments stay as they are.
.macro EXCHANGE register, offset
        .irp saved, %rdi, %rsi, %rdx, %rcx, %r8, %r9, %r11, %rax
        pushq   \saved
        .cfi_adjust_cfa_offset 8
        .endr
        subq    $136, %rsp
        .cfi_adjust_cfa_offset 136
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        movups  %xmm\number, 16 * \number(%rsp)
        .endr
        movq    \register, %rdi
        call    *grape_real_handle(%rip)
        movq    %rax, 136 + \offset(%rsp)
        .irp number, 0, 1, 2, 3, 4, 5, 6, 7
        movups  16 * \number(%rsp), %xmm\number
        .endr
        addq    $136, %rsp
        .cfi_adjust_cfa_offset -136
        .irp saved, %rax, %r11, %r9, %r8, %rcx, %rdx, %rsi, %rdi
        popq    \saved
        .cfi_adjust_cfa_offset -8
        .endr
.endm

        .type   grape_thunk_go, @function
        .p2align 4
grape_thunk_go:
        .cfi_startproc
        IF_OURS %rdi, 2f
1:      IF_OURS %rsi, 3f
9:      jmp     *(%r11)
2:      EXCHANGE %rdi, 56
        jmp     1b
3:      EXCHANGE %rsi, 48
        jmp     9b
        .cfi_endproc
        .size   grape_thunk_go, . - grape_thunk_go
        .section .note.GNU-stack, "", @progbits
