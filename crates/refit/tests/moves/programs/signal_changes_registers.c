// A handler that changes the registers of whom it has interrupted: what it leaves in its frame is what goes on.
#include "check.h"
#include <ucontext.h>

static void skip(int number, siginfo_t *info, void *context) {
    (void)number;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    CHECK((greg_t)(uintptr_t)info->si_addr == registers[REG_RIP]);
    // ud2 is two bytes long.
    registers[REG_RIP] += 2;
    registers[REG_RAX] = registers[REG_RBX] * 3;
    registers[REG_R12] ^= registers[REG_R13];
}

int main(void) {
    on_signal(SIGILL, skip, 0);
    uint64_t seed = 5;
    REPEAT(20) {
        uint64_t a = next_random(&seed), b = next_random(&seed), c = next_random(&seed), product = 0, mixed = b;
        asm volatile("mov %2, %%rbx\n mov %1, %%r12\n mov %3, %%r13\n ud2\n mov %%r12, %1"
                     : "=&a"(product), "+&r"(mixed)
                     : "r"(a), "r"(c)
                     : "rbx", "r12", "r13", "memory", "cc");
        CHECK(product == a * 3 && mixed == (b ^ c));
    }
    printf("what the handler left is what went on\n");
    return 0;
}
