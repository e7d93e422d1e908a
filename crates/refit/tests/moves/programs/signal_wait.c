// Blocked signals are taken with sigwaitinfo and sigtimedwait by whoever waits, each once, with their values.
#include "check.h"

#define SIGNALS 50

static void *take(void *argument) {
    uint64_t sum = 0;
    sigset_t *set = argument;
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(set, &info);
        if (number == -1 && errno == EINTR)
            continue;
        CHECK(number == SIGRTMIN || number == SIGRTMIN + 1);
        if (number == SIGRTMIN + 1)
            return (void *)sum;
        sum += (uint64_t)info.si_value.sival_int;
    }
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGRTMIN + 1);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    REPEAT(3) {
        pthread_t takers[2] = {start(take, &set), start(take, &set)};
        for (int i = 1; i <= SIGNALS; i++)
            EQUAL(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}), 0);
        for (int i = 0; i < 2; i++)
            EQUAL(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){0}), 0);
        EQUAL((uintptr_t)join(takers[0]) + (uintptr_t)join(takers[1]), SIGNALS * (SIGNALS + 1) / 2);
        struct timespec soon = {0, 1000000};
        CHECK(sigtimedwait(&set, NULL, &soon) == -1 && errno == EAGAIN);
    }
    printf("%d signals taken\n", SIGNALS);
    return 0;
}
