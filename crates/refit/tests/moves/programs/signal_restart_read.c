// A read that a handler interrupts goes on by itself (SA_RESTART), at the same place, with the same buffer.
#include "check.h"

static int ends_[2];
static atomic_int calls;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    atomic_fetch_add(&calls, 1);
}

static void *pester(void *argument) {
    pthread_t *reader = argument;
    atomic_store(&calls, 0);
    for (int i = 0; i < 20; i++) {
        EQUAL(pthread_kill(*reader, SIGUSR1), 0);
        await(&calls, i + 1);
    }
    EQUAL(write(ends_[1], "x", 1), 1);
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, SA_RESTART);
    EQUAL(pipe(ends_), 0);
    REPEAT(3) {
        pthread_t self = pthread_self();
        char byte = 0;
        pthread_t other = start(pester, &self);
        EQUAL(read(ends_[0], &byte, 1), 1);
        EQUAL(byte, 'x');
        join(other);
        EQUAL(atomic_load(&calls), 20);
    }
    printf("read after 20 signals\n");
    return 0;
}
