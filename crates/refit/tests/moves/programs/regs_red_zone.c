// The 128 bytes below the stack pointer are the program's, also while it is stopped and asked to make calls.
#include "check.h"

// Fills them from a seed, spins, and tells whether they hold what they held.
int hold(uint64_t seed, uint64_t turns);
asm(".text\n.globl hold\n"
    "hold:\n mov $16, %ecx\n lea (%rdi), %rdx\n"
    "1: neg %rcx\n mov %rdx, (%rsp,%rcx,8)\n neg %rcx\n add %rdi, %rdx\n dec %rcx\n jnz 1b\n"
    "2: dec %rsi\n jnz 2b\n"
    " mov $16, %ecx\n lea (%rdi), %rdx\n"
    "3: neg %rcx\n cmp %rdx, (%rsp,%rcx,8)\n jne 4f\n neg %rcx\n add %rdi, %rdx\n dec %rcx\n jnz 3b\n"
    " mov $1, %eax\n ret\n"
    "4: xor %eax, %eax\n ret\n");

int main(void) {
    uint64_t seed = 9;
    REPEAT(20)
        EQUAL(hold(next_random(&seed), 300000), 1);
    printf("128 bytes kept\n");
    return 0;
}
