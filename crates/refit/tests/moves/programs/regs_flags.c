// The flags, direction and all, in a loop that leaves them alone.
#include "check.h"

static uint64_t keep(uint64_t flags, uint64_t turns) {
    asm volatile("lea -128(%%rsp), %%rsp\n push %0\n popf\n"
                 "1: jrcxz 2f\n lea -1(%%rcx), %%rcx\n jmp 1b\n"
                 "2: pushf\n pop %0\n cld\n lea 128(%%rsp), %%rsp"
                 : "+r"(flags), "+c"(turns)
                 :
                 : "cc", "memory");
    return flags;
}

int main(void) {
    // Carry, parity, adjust, zero, sign, direction, overflow.
    const uint64_t bits[] = {1, 4, 0x10, 0x40, 0x80, 0x400, 0x800};
    uint64_t all = 0;
    for (unsigned i = 0; i < 7; i++)
        all |= bits[i];
    REPEAT(1)
        for (unsigned chosen = 0; chosen < 128; chosen++) {
            uint64_t flags = 0x202;
            for (unsigned i = 0; i < 7; i++)
                flags |= chosen >> i & 1 ? bits[i] : 0;
            EQUAL(keep(flags, 5000) & all, flags & all);
        }
    printf("7 flags kept\n");
    return 0;
}
