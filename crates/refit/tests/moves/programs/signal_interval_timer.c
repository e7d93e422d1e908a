// An interval timer that ticks while the program computes, and stops ticking when it is told to.
#include "check.h"
#include <sys/time.h>

static volatile sig_atomic_t ticks;

static void tick(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    CHECK(info->si_code == SI_KERNEL);
    ticks++;
}

int main(void) {
    on_signal(SIGALRM, tick, SA_RESTART);
    REPEAT(2) {
        struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}}, left;
        uint64_t work = 1;
        ticks = 0;
        EQUAL(setitimer(ITIMER_REAL, &every, NULL), 0);
        while (ticks < 10)
            for (unsigned i = 0; i < 1000; i++)
                used(work = work * 31 + 7);
        EQUAL(setitimer(ITIMER_REAL, &never, &left), 0);
        EQUAL(left.it_interval.tv_usec, 1000);
        int after = ticks;
        usleep(3000);
        EQUAL(ticks, after);
    }
    printf("10 ticks at a time\n");
    return 0;
}
