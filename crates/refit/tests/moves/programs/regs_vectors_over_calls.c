// System calls keep vector registers, wherever they are made.
#include "check.h"

static void keep(const uint8_t *in, uint8_t *out, uint64_t times) {
    asm volatile(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu 16*\\n(%2), %%xmm\\n\n.endr\n"
                 "1: mov %[call], %%eax\n syscall\n dec %0\n jnz 1b\n"
                 ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu %%xmm\\n, 16*\\n(%3)\n.endr"
                 : "+r"(times), "=&a"((uint64_t){0})
                 : "r"(in), "r"(out), [call] "i"(SYS_getppid)
                 : "cc", "memory", "rcx", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

int main(void) {
    uint64_t seed = 77;
    uint8_t in[256], out[256];
    REPEAT(3) {
        for (unsigned i = 0; i < sizeof(in); i++)
            in[i] = (uint8_t)next_random(&seed);
        memset(out, 0, sizeof(out));
        keep(in, out, 20);
        EQUAL(memcmp(in, out, sizeof(in)), 0);
    }
    printf("16 registers kept over calls\n");
    return 0;
}
