// Waiters that are moved from one word to another: each is woken once, from where it is by then.
#include "check.h"
#include <linux/futex.h>

#define WAITERS 4

static atomic_int first, second, woken;

static void *run(void *argument) {
    while (atomic_load(&first) == 0) {
        long got = syscall(SYS_futex, &first, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        CHECK(got == 0 || errno == EAGAIN || errno == EINTR);
    }
    atomic_fetch_add(&woken, 1);
    return argument;
}

int main(void) {
    REPEAT(3) {
        pthread_t threads[WAITERS];
        atomic_store(&first, 0);
        atomic_store(&woken, 0);
        for (int i = 0; i < WAITERS; i++)
            threads[i] = start(run, NULL);
        // Until all of them have been moved, wherever they were when it began; none is woken on the way.
        long moved = 0;
        while (moved < WAITERS) {
            long got = syscall(SYS_futex, &first, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)WAITERS, &second, 0);
            CHECK(got >= 0);
            moved += got;
            sched_yield();
        }
        EQUAL(atomic_load(&woken), 0);
        CHECK(syscall(SYS_futex, &first, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)1, &second, 1) == -1 && errno == EAGAIN);
        atomic_store(&first, 1);
        // One whose wait was begun anew, as by a debugger, is back at the first.
        long told = 0;
        while (told < WAITERS && atomic_load(&woken) < WAITERS) {
            told += syscall(SYS_futex, &second, FUTEX_WAKE_PRIVATE, WAITERS, NULL, NULL, 0);
            told += syscall(SYS_futex, &first, FUTEX_WAKE_PRIVATE, WAITERS, NULL, NULL, 0);
        }
        for (int i = 0; i < WAITERS; i++)
            join(threads[i]);
        EQUAL(atomic_load(&woken), WAITERS);
    }
    printf("%d waiters moved and woken\n", WAITERS);
    return 0;
}
