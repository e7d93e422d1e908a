// Mutexes that the kernel knows the owner of (futexes of priority inheritance).
#include "check.h"

static pthread_mutex_t mutex;
static uint64_t counter;

static void *run(void *argument) {
    for (int i = 0; i < 300; i++) {
        EQUAL(pthread_mutex_lock(&mutex), 0);
        counter++;
        if (i % 16 == 0)
            sched_yield();
        EQUAL(pthread_mutex_unlock(&mutex), 0);
    }
    return argument;
}

int main(void) {
    pthread_mutexattr_t attributes;
    EQUAL(pthread_mutexattr_init(&attributes), 0);
    EQUAL(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT), 0);
    EQUAL(pthread_mutex_init(&mutex, &attributes), 0);
    REPEAT(2) {
        counter = 0;
        pthread_t others[2] = {start(run, NULL), start(run, NULL)};
        run(NULL);
        join(others[0]);
        join(others[1]);
        EQUAL(counter, 900);
    }
    printf("counted by 3 threads\n");
    return 0;
}
