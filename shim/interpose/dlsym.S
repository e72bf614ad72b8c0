// dlsym and dlvsym. Names that cannot be the driver's, and everything asked with RTLD_NEXT, go on by a jump, so that
// the real function sees the true caller: RTLD_NEXT and RTLD_DEFAULT mean the objects after, or the scope of, that one.
//
//   %rdi handle, %rsi name, %rdx version (dlvsym)

        .text

// A forwarder named `name`: its real function's address is kept in grape_real_<name>, asked for by find_<name>.
.macro LOADER_FUNCTION name, real, find, driver
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        cmpq    $-1, %rdi               // RTLD_NEXT
        je      1f
        testq   %rsi, %rsi
        jz      1f
        cmpb    $'c', (%rsi)
        jne     1f
        cmpb    $'u', 1(%rsi)
        jne     1f
        movzbl  2(%rsi), %eax
        subl    $'A', %eax
        cmpl    $25, %eax
        ja      1f
        testq   %rdi, %rdi              // RTLD_DEFAULT: ours to answer only for names that we export
        jnz     \driver
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    %rsi, %rdi
        call    grape_exports_symbol
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testl   %eax, %eax
        jnz     \driver
1:      movq    \real(%rip), %rax
        testq   %rax, %rax
        jz      2f
        jmp     *%rax
2:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        call    \find
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        movq    %rax, \real(%rip)
        testq   %rax, %rax
        jz      3f
        jmp     *%rax
3:      ret
        .cfi_endproc
        .size   \name, . - \name
.endm

        LOADER_FUNCTION dlsym, real_dlsym, grape_find_dlsym, grape_dlsym_driver
        LOADER_FUNCTION dlvsym, real_dlvsym, grape_find_dlvsym, grape_dlvsym_driver

        .bss
        .p2align 3
real_dlsym:
        .zero   8
real_dlvsym:
        .zero   8
        .section .note.GNU-stack, "", @progbits
