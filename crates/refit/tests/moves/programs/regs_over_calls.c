// System calls change rax, rcx and r11 and nothing else, also where the call is made by another process.
#include "check.h"

// Fills what a call has to keep from a seed, makes calls of a number, and tells whether all hold what they held.
int hold(uint64_t seed, uint64_t number, uint64_t times);
asm(".text\n.globl hold\n"
    ".macro same register, number\n sub (%rsp), %\\register\n cmp $\\number, %\\register\n jne 2f\n.endm\n"
    "hold:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdx\n push %rsi\n push %rdi\n"
    " lea 2(%rdi), %rbx\n lea 4(%rdi), %rdx\n lea 5(%rdi), %rsi\n lea 6(%rdi), %rbp\n lea 7(%rdi), %r8\n"
    " lea 8(%rdi), %r9\n lea 9(%rdi), %r10\n lea 11(%rdi), %r12\n lea 12(%rdi), %r13\n lea 13(%rdi), %r14\n"
    " lea 14(%rdi), %r15\n"
    "1: mov 8(%rsp), %rax\n syscall\n decq 16(%rsp)\n jnz 1b\n"
    " same rdi, 0\n same rbx, 2\n same rdx, 4\n same rsi, 5\n same rbp, 6\n same r8, 7\n same r9, 8\n same r10, 9\n"
    " same r12, 11\n same r13, 12\n same r14, 13\n same r15, 14\n"
    " mov $1, %eax\n jmp 3f\n"
    "2: xor %eax, %eax\n"
    "3: add $24, %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

int main(void) {
    uint64_t seed = 88172645463325252;
    // They take no arguments, but for the last, which is wrong in all it is given.
    long numbers[] = {SYS_getpid, SYS_gettid, SYS_getppid, SYS_sched_yield, SYS_getuid, SYS_dup3};
    REPEAT(3)
        for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
            EQUAL(hold(next_random(&seed), (uint64_t)numbers[i], 20), 1);
    printf("12 registers kept over calls\n");
    return 0;
}
