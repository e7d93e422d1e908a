// Semaphores: never more within than there are places, and what is done once is done once.
#include "check.h"
#include <semaphore.h>

static sem_t places;
static atomic_int within, most, begun;
static pthread_once_t once;

static void begin(void) { atomic_fetch_add(&begun, 1); }

static void *run(void *argument) {
    for (int i = 0; i < 100; i++) {
        EQUAL(pthread_once(&once, begin), 0);
        EQUAL(atomic_load(&begun), 1);
        while (sem_wait(&places) == -1)
            EQUAL(errno, EINTR);
        int now = atomic_fetch_add(&within, 1) + 1;
        CHECK(now <= 2);
        if (now > atomic_load(&most))
            atomic_store(&most, now);
        sched_yield();
        atomic_fetch_sub(&within, 1);
        EQUAL(sem_post(&places), 0);
    }
    return argument;
}

int main(void) {
    REPEAT(2) {
        EQUAL(sem_init(&places, 0, 2), 0);
        once = (pthread_once_t)PTHREAD_ONCE_INIT;
        atomic_store(&begun, 0);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(run, NULL);
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        int value;
        EQUAL(sem_getvalue(&places, &value), 0);
        EQUAL(value, 2);
    }
    CHECK(atomic_load(&most) >= 1);
    printf("4 threads through 2 places\n");
    return 0;
}
