// The processor's own clock goes forward for a thread, and from one thread to another.
#include "check.h"

static _Atomic uint64_t latest;

static uint64_t counter(void) {
    uint32_t low, high;
    asm volatile("lfence\n rdtsc\n lfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

static void *run(void *argument) {
    REPEAT(20)
        for (int i = 0; i < 1000; i++) {
            uint64_t seen = atomic_load(&latest), now = counter();
            // Processors may differ by some cycles.
            CHECK(now + 10000 >= seen);
            while (seen < now && !atomic_compare_exchange_weak(&latest, &seen, now))
                ;
            CHECK(counter() + 10000 >= now);
        }
    return argument;
}

int main(void) {
    pthread_t other = start(run, NULL);
    run(NULL);
    join(other);
    printf("the counter went forward for 2 threads\n");
    return 0;
}
