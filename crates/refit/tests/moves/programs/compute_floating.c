// Sums and iterations in all three kinds of floating point, bit by bit what they were the first time.
#include "check.h"
#include <math.h>

static uint64_t bits(float single, double twice, long double more) {
    uint64_t hash = 0, part = 0;
    memcpy(&part, &single, sizeof(single));
    hash = hash * 31 + part;
    memcpy(&part, &twice, sizeof(twice));
    hash = hash * 31 + part;
    // Ten bytes of it are its value.
    uint16_t rest;
    memcpy(&part, &more, 8);
    memcpy(&rest, (uint8_t *)&more + 8, 2);
    return (hash * 31 + part) * 31 + rest;
}

int main(void) {
    uint64_t first = 0;
    REPEAT(3) {
        float single = 0;
        double twice = 0.3, angle = 0;
        long double more = 0;
        for (int i = 1; i < 30000; i++) {
            single += 1.0f / (float)i;
            twice = 3.9 * twice * (1 - twice);
            more += sqrtl((long double)i) / 3;
            angle = sin(angle) + cos(twice) * exp(-twice);
        }
        uint64_t got = bits(single, twice + angle, more);
        first = first ? first : got;
        CHECK(got == first);
    }
    printf("%016llx\n", (unsigned long long)first);
    return 0;
}
