// Pairs of words that are exchanged by one instruction (cmpxchg16b): nobody sees half of one.
#include "check.h"

struct pair {
    _Alignas(16) volatile uint64_t low;
    volatile uint64_t high;
};

static struct pair shared;

static bool exchange(uint64_t low, uint64_t high, uint64_t *seen_low, uint64_t *seen_high) {
    bool done;
    asm volatile("lock cmpxchg16b %1\n sete %0"
                 : "=q"(done), "+m"(shared), "+a"(*seen_low), "+d"(*seen_high)
                 : "b"(low), "c"(high)
                 : "cc", "memory");
    return done;
}

static void *run(void *argument) {
    for (int i = 0; i < 5000; i++) {
        uint64_t low = 0, high = 0;
        while (!exchange(low + 1, (low + 1) * 3, &low, &high))
            EQUAL(high, low * 3);
    }
    return argument;
}

int main(void) {
    REPEAT(2) {
        shared.low = shared.high = 0;
        pthread_t others[2] = {start(run, NULL), start(run, NULL)};
        run(NULL);
        join(others[0]);
        join(others[1]);
        EQUAL(shared.low, 15000);
        EQUAL(shared.high, 45000);
    }
    printf("15000 pairs\n");
    return 0;
}
