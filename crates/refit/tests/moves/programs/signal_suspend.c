// sigsuspend lets signals in and waits in one: none comes in between and is slept over; the mask is back afterwards.
#include "check.h"

static volatile sig_atomic_t got;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    got++;
}

static void *send(void *argument) {
    EQUAL(pthread_kill(*(pthread_t *)argument, SIGUSR1), 0);
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    sigset_t set, old, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    int wanted = 0;
    pthread_t self = pthread_self();
    REPEAT(10) {
        pthread_t other = start(send, &self);
        CHECK(sigsuspend(&old) == -1 && errno == EINTR);
        EQUAL(got, ++wanted);
        join(other);
        EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
        EQUAL(sigismember(&now, SIGUSR1), 1);
    }
    printf("none slept over\n");
    return 0;
}
