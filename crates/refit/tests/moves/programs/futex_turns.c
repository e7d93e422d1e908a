// Two threads that wake each other by raw futexes: a word that is compared too early, and a wake-up is lost.
#include "check.h"
#include <linux/futex.h>

static atomic_int turn;

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int i = 0; i < 300; i++) {
        while (atomic_load(&turn) != own) {
            long got = syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !own, NULL, NULL, 0);
            CHECK(got == 0 || errno == EAGAIN || errno == EINTR);
        }
        atomic_store(&turn, !own);
        CHECK(syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) <= 1);
    }
    return NULL;
}

int main(void) {
    REPEAT(2) {
        atomic_store(&turn, 0);
        pthread_t other = start(run, (void *)1);
        run((void *)0);
        join(other);
        EQUAL(atomic_load(&turn), 0);
    }
    printf("600 turns at a time\n");
    return 0;
}
