// Timers that count the time that the process computes: they tick while it does, wherever it does.
#include "check.h"
#include <sys/time.h>

static volatile sig_atomic_t ticks[2];

static void tick(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    ticks[number == SIGPROF]++;
}

int main(void) {
    on_signal(SIGVTALRM, tick, 0);
    on_signal(SIGPROF, tick, 0);
    REPEAT(1) {
        struct itimerval every = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
        ticks[0] = ticks[1] = 0;
        EQUAL(setitimer(ITIMER_VIRTUAL, &every, NULL), 0);
        EQUAL(setitimer(ITIMER_PROF, &every, NULL), 0);
        while (ticks[0] < 5 || ticks[1] < 5)
            for (uint64_t i = 0; i < 10000; i++)
                used(i);
        EQUAL(setitimer(ITIMER_VIRTUAL, &never, NULL), 0);
        EQUAL(setitimer(ITIMER_PROF, &never, NULL), 0);
    }
    printf("5 ticks of 2 timers at least\n");
    return 0;
}
