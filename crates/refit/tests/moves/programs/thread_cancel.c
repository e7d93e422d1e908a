// Threads that are cancelled while they read, compute or have put it off: their clean-up runs, and who joins them is told.
#include "check.h"

static int ends_[2];
static atomic_int ready, cleaned;

static void clean(void *argument) { atomic_fetch_add(&cleaned, (int)(intptr_t)argument); }

static void *reads(void *argument) {
    char byte;
    pthread_cleanup_push(clean, (void *)1);
    atomic_fetch_add(&ready, 1);
    while (read(ends_[0], &byte, 1) != 1)
        ;
    pthread_cleanup_pop(0);
    return argument;
}

static void *computes(void *argument) {
    pthread_cleanup_push(clean, (void *)10);
    EQUAL(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    atomic_fetch_add(&ready, 1);
    for (uint64_t i = 0;; i++)
        used(i);
    pthread_cleanup_pop(0);
    return argument;
}

static void *puts_off(void *argument) {
    EQUAL(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    atomic_fetch_add(&ready, 1);
    for (int i = 0; i < 10; i++) {
        pthread_testcancel();
        sched_yield();
    }
    return argument;
}

int main(void) {
    EQUAL(pipe(ends_), 0);
    REPEAT(3) {
        atomic_store(&ready, 0);
        atomic_store(&cleaned, 0);
        pthread_t threads[] = {start(reads, NULL), start(computes, NULL), start(puts_off, (void *)5)};
        await(&ready, 3);
        for (int i = 0; i < 3; i++) {
            int got = pthread_cancel(threads[i]);
            CHECK(got == 0 || got == ESRCH);
        }
        CHECK(join(threads[0]) == PTHREAD_CANCELED);
        CHECK(join(threads[1]) == PTHREAD_CANCELED);
        CHECK(join(threads[2]) == (void *)5);
        EQUAL(atomic_load(&cleaned), 11);
    }
    printf("2 cancelled, 1 not\n");
    return 0;
}
