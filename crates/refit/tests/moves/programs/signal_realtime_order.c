// Real-time signals that wait come in the order of their numbers, those of one number in the order they were sent.
#include "check.h"

static volatile int seen[64], count;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    seen[count++] = (number - SIGRTMIN) * 100 + info->si_value.sival_int;
}

int main(void) {
    sigset_t set, old;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
        sigfillset(&action.sa_mask);
        EQUAL(sigaction(SIGRTMIN + i, &action, NULL), 0);
        sigaddset(&set, SIGRTMIN + i);
    }
    REPEAT(3) {
        count = 0;
        EQUAL(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
        for (int value = 0; value < 10; value++)
            for (int i = 3; i >= 0; i--)
                EQUAL(sigqueue(getpid(), SIGRTMIN + i, (union sigval){.sival_int = value}), 0);
        EQUAL(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
        EQUAL(count, 40);
        for (int i = 0; i < 40; i++)
            EQUAL(seen[i], i / 10 * 100 + i % 10);
    }
    printf("40 signals in their order\n");
    return 0;
}
