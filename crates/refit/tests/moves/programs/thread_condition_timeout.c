// Waits with an end: they end with ETIMEDOUT, not before their time, with the mutex held.
#include "check.h"

static pthread_mutex_t mutex;
static pthread_cond_t never;

int main(void) {
    pthread_condattr_t attributes;
    pthread_mutexattr_t kind;
    EQUAL(pthread_condattr_init(&attributes), 0);
    EQUAL(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC), 0);
    EQUAL(pthread_cond_init(&never, &attributes), 0);
    EQUAL(pthread_mutexattr_init(&kind), 0);
    EQUAL(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK), 0);
    EQUAL(pthread_mutex_init(&mutex, &kind), 0);
    REPEAT(5) {
        uint64_t until = now_ns() + 3000000;
        struct timespec end = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        EQUAL(pthread_mutex_lock(&mutex), 0);
        int got;
        while ((got = pthread_cond_timedwait(&never, &mutex, &end)) == 0)
            ;
        EQUAL(got, ETIMEDOUT);
        CHECK(now_ns() >= until);
        EQUAL(pthread_mutex_lock(&mutex), EDEADLK);
        EQUAL(pthread_mutex_unlock(&mutex), 0);
    }
    printf("not before their time\n");
    return 0;
}
