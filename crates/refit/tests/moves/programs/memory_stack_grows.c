// The first stack grows as it is used, by megabytes, and what lies deep in it is kept.
#include "check.h"

__attribute__((noinline)) static uint64_t dive(unsigned depth, uint64_t seed) {
    volatile uint64_t frame[400];
    for (int i = 0; i < 400; i += 40)
        frame[i] = next_random(&seed);
    uint64_t below = depth ? dive(depth - 1, seed) : seed, own = 0;
    for (int i = 0; i < 400; i += 40)
        own = own * 31 + frame[i];
    return below ^ own;
}

int main(void) {
    uint64_t first = 0;
    REPEAT(5) {
        pid_t child = fork();
        if (child == 0)
            _exit(dive(1500, 1) == dive(1500, 1) ? 0 : 1);
        ends(child, 0);
        uint64_t got = dive(1500, 99);
        first = first ? first : got;
        CHECK(got == first);
    }
    printf("5 MB deep: %016llx\n", (unsigned long long)first);
    return 0;
}
