// A long recurrence of whole numbers whose end can be told without going through it.
#include "check.h"

#define FACTOR 6364136223846793005u
#define STEPS 3000000

int main(void) {
    // x -> a x + c, so many times, by doubling.
    uint64_t factor = FACTOR, add = 1442695040888963407u, all = 1, plus = 0;
    for (unsigned steps = STEPS; steps > 0; steps /= 2) {
        if (steps % 2)
            all *= factor, plus = plus * factor + add;
        add *= factor + 1, factor *= factor;
    }
    uint64_t start_ = 1;
    REPEAT(3) {
        uint64_t x = start_;
        for (unsigned i = 0; i < STEPS; i++)
            x = x * FACTOR + 1442695040888963407u;
        CHECK(x == start_ * all + plus);
        start_ = start_ * 3 + 1;
    }
    printf("%016llx\n", (unsigned long long)(all + plus));
    return 0;
}
