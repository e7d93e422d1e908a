// The 32 registers of AVX-512 and its masks, the largest extended state that is common.
#include "check.h"

#define ALL "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

static void keep(const uint8_t *in, uint8_t *out, uint64_t turns) {
    asm volatile(".irp n, " ALL "\n vmovdqu64 64*\\n(%1), %%zmm\\n\n.endr\n"
                 ".irp n, 0,1,2,3,4,5,6,7\n kmovw 2048+2*\\n(%1), %%k\\n\n.endr\n"
                 "1: dec %0\n jnz 1b\n"
                 ".irp n, " ALL "\n vmovdqu64 %%zmm\\n, 64*\\n(%2)\n.endr\n"
                 ".irp n, 0,1,2,3,4,5,6,7\n kmovw %%k\\n, 2048+2*\\n(%2)\n.endr\n"
                 "vzeroupper"
                 : "+r"(turns)
                 : "r"(in), "r"(out)
                 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void *run(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    uint8_t in[2048 + 16], out[2048 + 16];
    REPEAT(20) {
        for (unsigned i = 0; i < sizeof(in); i++)
            in[i] = (uint8_t)next_random(&seed);
        memset(out, 0, sizeof(out));
        keep(in, out, 300000);
        EQUAL(memcmp(in, out, sizeof(in)), 0);
    }
    return NULL;
}

int main(void) {
    if (!__builtin_cpu_supports("avx512f")) {
        printf("no AVX-512 here\n");
        return 0;
    }
    pthread_t other = start(run, (void *)5);
    run((void *)6);
    join(other);
    printf("32 registers and 8 masks of 2 threads kept\n");
    return 0;
}
