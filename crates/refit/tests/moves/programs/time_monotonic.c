// Time goes forward, for one thread and from one to another, whoever asks from where.
#include "check.h"

static _Atomic uint64_t latest;

static void *run(void *argument) {
    struct timespec coarse;
    REPEAT(100) {
        uint64_t seen = atomic_load(&latest), now = now_ns();
        CHECK(now >= seen);
        while (seen < now && !atomic_compare_exchange_weak(&latest, &seen, now))
            ;
        EQUAL(clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse), 0);
        uint64_t behind = (uint64_t)coarse.tv_sec * 1000000000 + (uint64_t)coarse.tv_nsec;
        CHECK(behind <= now_ns());
    }
    return argument;
}

int main(void) {
    pthread_t others[2] = {start(run, NULL), start(run, NULL)};
    run(NULL);
    join(others[0]);
    join(others[1]);
    printf("time went forward for 3 threads\n");
    return 0;
}
