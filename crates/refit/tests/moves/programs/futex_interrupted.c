// A wait that a handler interrupts: it ends with EINTR, or goes on if the action says so, and is woken then.
#include "check.h"
#include <linux/futex.h>

static atomic_int word, calls, done;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    atomic_fetch_add(&calls, 1);
}

static void *pester(void *argument) {
    pthread_t *waiter = argument;
    while (!atomic_load(&done)) {
        EQUAL(pthread_kill(*waiter, SIGUSR1), 0);
        usleep(200);
    }
    return NULL;
}

static void *pester_and_wake(void *argument) {
    pthread_t *waiter = argument;
    atomic_store(&calls, 0);
    for (int i = 0; i < 10; i++) {
        EQUAL(pthread_kill(*waiter, SIGUSR1), 0);
        await(&calls, i + 1);
    }
    atomic_store(&word, 1);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return NULL;
}

int main(void) {
    pthread_t self = pthread_self();
    REPEAT(3) {
        on_signal(SIGUSR1, handler, 0);
        atomic_store(&done, 0);
        atomic_store(&word, 0);
        pthread_t other = start(pester, &self);
        CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == -1 && errno == EINTR);
        atomic_store(&done, 1);
        join(other);
        on_signal(SIGUSR1, handler, SA_RESTART);
        other = start(pester_and_wake, &self);
        long got = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        CHECK(got == 0 || errno == EAGAIN);
        EQUAL(atomic_load(&word), 1);
        join(other);
        EQUAL(atomic_load(&calls), 10);
    }
    printf("interrupted, and gone on\n");
    return 0;
}
