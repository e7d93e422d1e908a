// How SSE rounds, whether it flushes to zero, and what it has met so far.
#include "check.h"

static void set(uint32_t word) { asm volatile("ldmxcsr %0" : : "m"(word)); }

static uint32_t get(void) {
    uint32_t word;
    asm volatile("stmxcsr %0" : "=m"(word));
    return word;
}

static double divide(double a, double b) {
    asm volatile("divsd %1, %0" : "+x"(a) : "x"(b));
    return a;
}

int main(void) {
    // A third, rounded to the nearest, down, up, to zero; of its negative, too.
    const uint64_t third[] = {0x3fd5555555555555, 0x3fd5555555555555, 0x3fd5555555555556, 0x3fd5555555555555};
    const uint64_t minus[] = {0xbfd5555555555555, 0xbfd5555555555556, 0xbfd5555555555555, 0xbfd5555555555555};
    REPEAT(5)
        for (unsigned rounding = 0; rounding < 4; rounding++) {
            set(0x1f80 | rounding << 13);
            for (unsigned i = 0; i < 20000; i++) {
                double up = divide(1, 3), down = divide(-1, 3);
                CHECK(memcmp(&up, &third[rounding], 8) == 0);
                CHECK(memcmp(&down, &minus[rounding], 8) == 0);
            }
            // Inexact, and nothing else.
            EQUAL(get(), 0x1fa0 | rounding << 13);
            // Flush to zero: the smallest number that is normal, halved.
            set(0x9f80);
            for (unsigned i = 0; i < 5000; i++)
                CHECK(divide(0x1p-1022, 2) == 0);
            set(0x1f80);
            CHECK(divide(0x1p-1022, 2) != 0);
        }
    printf("4 roundings kept\n");
    return 0;
}
