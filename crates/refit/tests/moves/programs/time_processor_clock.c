// Clocks of what a thread and its process have computed: they go on with work, and the process's is no less than the thread's.
#include "check.h"

static uint64_t of(clockid_t clock) {
    struct timespec now;
    EQUAL(clock_gettime(clock, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *run(void *argument) {
    REPEAT(5) {
        uint64_t process = of(CLOCK_PROCESS_CPUTIME_ID), thread = of(CLOCK_THREAD_CPUTIME_ID);
        CHECK(of(CLOCK_PROCESS_CPUTIME_ID) >= thread);
        for (uint64_t i = 0; i < 300000; i++)
            used(i);
        uint64_t then = of(CLOCK_THREAD_CPUTIME_ID);
        CHECK(then > thread);
        // The first was read before, the second after.
        CHECK(of(CLOCK_PROCESS_CPUTIME_ID) - process >= then - thread);
    }
    return argument;
}

int main(void) {
    pthread_t other = start(run, NULL);
    run(NULL);
    join(other);
    printf("clocks of 2 threads and their process\n");
    return 0;
}
