// One alarm at a time: it tells how much the last one had left, and comes while the program waits.
#include "check.h"

static volatile sig_atomic_t calls;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    calls++;
}

int main(void) {
    on_signal(SIGALRM, handler, 0);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    int wanted = 0;
    REPEAT(5) {
        EQUAL(alarm(10000), 0);
        CHECK(alarm(20000) > 5000);
        CHECK(alarm(0) > 15000);
        uint64_t before = now_ns();
        EQUAL(ualarm(2000, 0), 0);
        while (calls == wanted)
            sigsuspend(&old);
        CHECK(now_ns() - before >= 2000000);
        EQUAL(calls, ++wanted);
        EQUAL(alarm(0), 0);
    }
    printf("one alarm at a time\n");
    return 0;
}
