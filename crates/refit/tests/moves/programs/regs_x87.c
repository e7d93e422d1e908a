// The stack of the x87, full and half full, and its control word.
#include "check.h"

static void full(const long double *in, long double *out, uint64_t turns) {
    asm volatile("fninit\n"
                 ".irp n, 0,1,2,3,4,5,6,7\n fldt 16*\\n(%1)\n.endr\n"
                 "1: dec %0\n jnz 1b\n"
                 ".irp n, 7,6,5,4,3,2,1,0\n fstpt 16*\\n(%2)\n.endr"
                 : "+r"(turns)
                 : "r"(in), "r"(out)
                 : "cc", "memory", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)");
}

// The control word, and where the top of the stack is after three values.
static unsigned half(uint16_t control, uint64_t turns) {
    uint16_t status, after;
    asm volatile("fninit\n fldcw %3\n fld1\n fldpi\n fldl2e\n"
                 "1: dec %0\n jnz 1b\n"
                 "fnstsw %1\n fnstcw %2\n fninit"
                 : "+r"(turns), "=m"(status), "=m"(after)
                 : "m"(control)
                 : "cc", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)");
    return (unsigned)after << 16 | (status >> 11 & 7);
}

int main(void) {
    long double in[8], out[8];
    uint64_t seed = 3;
    REPEAT(10) {
        for (unsigned i = 0; i < 8; i++)
            in[i] = (long double)next_random(&seed) / 7;
        full(in, out, 200000);
        for (unsigned i = 0; i < 8; i++)
            CHECK(in[i] == out[i]);
        for (unsigned rounding = 0; rounding < 4; rounding++) {
            uint16_t control = (uint16_t)(0x037f | rounding << 10);
            EQUAL(half(control, 50000), (unsigned)control << 16 | 5);
        }
    }
    printf("8 values and 4 control words kept\n");
    return 0;
}
