// The registers of MMX, which are those of the x87 in another dress.
#include "check.h"

static void keep(const uint64_t *in, uint64_t *out, uint64_t turns) {
    asm volatile(".irp n, 0,1,2,3,4,5,6,7\n movq 8*\\n(%1), %%mm\\n\n.endr\n"
                 "1: dec %0\n jnz 1b\n"
                 ".irp n, 0,1,2,3,4,5,6,7\n movq %%mm\\n, 8*\\n(%2)\n.endr\n"
                 "emms"
                 : "+r"(turns)
                 : "r"(in), "r"(out)
                 : "cc", "memory", "mm0", "mm1", "mm2", "mm3", "mm4", "mm5", "mm6", "mm7");
}

int main(void) {
    uint64_t in[8], out[8], seed = 4;
    REPEAT(20) {
        for (unsigned i = 0; i < 8; i++)
            in[i] = next_random(&seed), out[i] = 0;
        keep(in, out, 300000);
        EQUAL(memcmp(in, out, sizeof(in)), 0);
    }
    printf("8 registers kept\n");
    return 0;
}
