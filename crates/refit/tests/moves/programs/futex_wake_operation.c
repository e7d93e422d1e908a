// A wake-up that changes a second word in one, and wakes its waiters if that was what it should be.
#include "check.h"
#include <linux/futex.h>

static atomic_int first, second;

static void *run(void *argument) {
    atomic_int *word = argument;
    for (;;) {
        long got = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        CHECK(got == 0 || errno == EAGAIN || errno == EINTR);
        if (got == 0)
            break;
    }
    return NULL;
}

int main(void) {
    int add = FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0), no = FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_GT, 100);
    REPEAT(3) {
        atomic_store(&first, 0);
        atomic_store(&second, 0);
        pthread_t threads[2] = {start(run, &first), start(run, &second)};
        long got = 0;
        // The second word is back at 0 before each try, or its waiter would not wait.
        while (got < 2) {
            long now = syscall(SYS_futex, &first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, add);
            CHECK(now >= 0);
            got += now;
            EQUAL(atomic_load(&second), 5);
            atomic_store(&second, 0);
            sched_yield();
        }
        join(threads[0]);
        join(threads[1]);
        EQUAL(syscall(SYS_futex, &first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, no), 0);
        EQUAL(atomic_load(&second), 9);
    }
    printf("2 words at once\n");
    return 0;
}
