// All general registers of several threads that only compute: one that is lost or another thread's shows.
#include "check.h"

// Fills all but the stack pointer from a seed, spins, and tells whether all hold what they held.
int hold(uint64_t seed, uint64_t turns);
asm(".text\n.globl hold\n"
    ".macro same register, number\n sub (%rsp), %\\register\n cmp $\\number, %\\register\n jne 2f\n.endm\n"
    "hold:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n push %rdi\n"
    " lea 1(%rdi), %rax\n lea 2(%rdi), %rbx\n lea 3(%rdi), %rcx\n lea 4(%rdi), %rdx\n lea 5(%rdi), %rsi\n"
    " lea 6(%rdi), %rbp\n lea 7(%rdi), %r8\n lea 8(%rdi), %r9\n lea 9(%rdi), %r10\n lea 10(%rdi), %r11\n"
    " lea 11(%rdi), %r12\n lea 12(%rdi), %r13\n lea 13(%rdi), %r14\n lea 14(%rdi), %r15\n"
    "1: decq 8(%rsp)\n jnz 1b\n"
    " same rdi, 0\n same rax, 1\n same rbx, 2\n same rcx, 3\n same rdx, 4\n same rsi, 5\n same rbp, 6\n same r8, 7\n"
    " same r9, 8\n same r10, 9\n same r11, 10\n same r12, 11\n same r13, 12\n same r14, 13\n same r15, 14\n"
    " mov $1, %eax\n jmp 3f\n"
    "2: xor %eax, %eax\n"
    "3: add $16, %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

static void *run(void *argument) {
    uint64_t seed = (uintptr_t)argument * 0x123456789abcdef;
    REPEAT(20)
        EQUAL(hold(next_random(&seed), 100000), 1);
    return NULL;
}

int main(void) {
    pthread_t others[2] = {start(run, (void *)1), start(run, (void *)2)};
    run((void *)3);
    join(others[0]);
    join(others[1]);
    printf("15 registers of 3 threads kept\n");
    return 0;
}
