// Waiters that are told apart by bits: a wake-up reaches those that it means.
#include "check.h"
#include <linux/futex.h>

static atomic_int word, ended[3];

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (;;) {
        long got = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 1 << own);
        if (got == 0)
            break;
        EQUAL(errno, EINTR);
    }
    atomic_store(&ended[own], 1);
    return NULL;
}

int main(void) {
    REPEAT(3) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            atomic_store(&ended[i], 0);
            threads[i] = start(run, (void *)(intptr_t)i);
        }
        for (int i = 2; i >= 0; i--) {
            EQUAL(syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 8), 0);
            // Until that one waits.
            while (syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 1 << i) == 0)
                sched_yield();
            join(threads[i]);
            for (int j = 0; j < i; j++)
                EQUAL(atomic_load(&ended[j]), 0);
        }
    }
    printf("3 waiters told apart\n");
    return 0;
}
