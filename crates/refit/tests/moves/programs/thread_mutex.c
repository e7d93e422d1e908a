// A counter that is no atomic, behind a mutex: two threads within it at once, or a wake-up that is lost, and it is wrong or hangs.
#include "check.h"

#define THREADS 4

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counter, within;

static void *run(void *argument) {
    for (int i = 0; i < 2000; i++) {
        EQUAL(pthread_mutex_lock(&mutex), 0);
        EQUAL(within++, 0);
        counter++;
        if (i % 512 == 0)
            sched_yield();
        within--;
        EQUAL(pthread_mutex_unlock(&mutex), 0);
    }
    return argument;
}

int main(void) {
    REPEAT(2) {
        pthread_t threads[THREADS];
        counter = 0;
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(run, NULL);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        EQUAL(counter, THREADS * 2000);
    }
    printf("counted by %d threads\n", THREADS);
    return 0;
}
