// A sleep that a handler interrupts tells how much is left; slept again and again, the whole is no less.
#include "check.h"

static atomic_int done;

static void handler(int number, siginfo_t *info, void *context) { (void)number, (void)info, (void)context; }

static void *pester(void *argument) {
    for (int i = 0; i < 15 && !atomic_load(&done); i++) {
        EQUAL(pthread_kill(*(pthread_t *)argument, SIGUSR1), 0);
        usleep(500);
    }
    return NULL;
}

int main(void) {
    pthread_t self = pthread_self();
    on_signal(SIGUSR1, handler, SA_RESTART);
    REPEAT(2) {
        atomic_store(&done, 0);
        pthread_t other = start(pester, &self);
        struct timespec left = {0, 10000000};
        uint64_t begun = now_ns();
        while (nanosleep(&left, &left) == -1) {
            EQUAL(errno, EINTR);
            // The kernel adds the slack of its timers, 50 us.
            CHECK(left.tv_sec == 0 && left.tv_nsec <= 11000000);
        }
        CHECK(now_ns() - begun >= 10000000);
        atomic_store(&done, 1);
        join(other);
    }
    printf("slept it all\n");
    return 0;
}
