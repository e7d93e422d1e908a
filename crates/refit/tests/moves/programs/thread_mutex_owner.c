// Mutexes that know whose they are: the number of a thread is what it was when it took them.
#include "check.h"

static pthread_mutex_t recursive, checking;

static void *foreign(void *argument) {
    EQUAL(pthread_mutex_unlock(&checking), EPERM);
    EQUAL(pthread_mutex_trylock(&checking), EBUSY);
    EQUAL(pthread_mutex_trylock(&recursive), EBUSY);
    return argument;
}

int main(void) {
    pthread_mutexattr_t attributes;
    EQUAL(pthread_mutexattr_init(&attributes), 0);
    EQUAL(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE), 0);
    EQUAL(pthread_mutex_init(&recursive, &attributes), 0);
    EQUAL(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK), 0);
    EQUAL(pthread_mutex_init(&checking, &attributes), 0);
    REPEAT(5) {
        EQUAL(pthread_mutex_lock(&checking), 0);
        for (int i = 0; i < 10; i++)
            EQUAL(pthread_mutex_lock(&recursive), 0);
        EQUAL(pthread_mutex_lock(&checking), EDEADLK);
        join(start(foreign, NULL));
        EQUAL(pthread_mutex_lock(&checking), EDEADLK);
        for (int i = 0; i < 10; i++)
            EQUAL(pthread_mutex_unlock(&recursive), 0);
        EQUAL(pthread_mutex_unlock(&recursive), EPERM);
        EQUAL(pthread_mutex_unlock(&checking), 0);
    }
    printf("mutexes know whose they are\n");
    return 0;
}
