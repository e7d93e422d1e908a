// A thread ends while it holds a robust mutex: the next one is told, mends what it guards, and it goes on.
#include "check.h"

static pthread_mutex_t mutex;
static int guarded;

static void *dies(void *argument) {
    int got = pthread_mutex_lock(&mutex);
    CHECK(got == 0 || got == EOWNERDEAD);
    if (got == EOWNERDEAD)
        EQUAL(pthread_mutex_consistent(&mutex), 0);
    guarded = (int)(intptr_t)argument;
    return NULL;
}

int main(void) {
    pthread_mutexattr_t attributes;
    EQUAL(pthread_mutexattr_init(&attributes), 0);
    EQUAL(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), 0);
    EQUAL(pthread_mutex_init(&mutex, &attributes), 0);
    int value = 0;
    REPEAT(5) {
        // Waits for one that is about to die, and for one that is dead.
        pthread_t dying = start(dies, (void *)(intptr_t)++value);
        if (value % 2)
            join(dying);
        else
            while (*(volatile int *)&guarded != value)
                sched_yield();
        EQUAL(pthread_mutex_lock(&mutex), EOWNERDEAD);
        EQUAL(guarded, value);
        EQUAL(pthread_mutex_consistent(&mutex), 0);
        EQUAL(pthread_mutex_unlock(&mutex), 0);
        EQUAL(pthread_mutex_lock(&mutex), 0);
        EQUAL(pthread_mutex_unlock(&mutex), 0);
        if (value % 2 == 0)
            join(dying);
    }
    printf("told of the dead, and mended\n");
    return 0;
}
