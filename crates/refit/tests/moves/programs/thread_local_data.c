// Variables of threads, with and without initial values, and keys with destructors that run at the end of each.
#include "check.h"

static _Thread_local int counted = 100;
static _Thread_local char text[PAGE + 17];
static pthread_key_t key;
static atomic_int destroyed;

static void destroy(void *value) { atomic_fetch_add(&destroyed, *(int *)value); }

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    EQUAL(counted, 100);
    EQUAL(text[PAGE], 0);
    EQUAL(pthread_setspecific(key, &counted), 0);
    memset(text, own, sizeof(text));
    for (int i = 0; i < 1000; i++) {
        counted += own;
        if (i % 100 == 0)
            sched_yield();
    }
    EQUAL(counted, 100 + 1000 * own);
    for (size_t i = 0; i < sizeof(text); i++)
        EQUAL(text[i], own);
    CHECK(pthread_getspecific(key) == &counted);
    counted = own;
    return NULL;
}

int main(void) {
    EQUAL(pthread_key_create(&key, destroy), 0);
    REPEAT(3) {
        pthread_t threads[5];
        atomic_store(&destroyed, 0);
        for (int i = 0; i < 5; i++)
            threads[i] = start(run, (void *)(intptr_t)(i + 1));
        for (int i = 0; i < 5; i++)
            join(threads[i]);
        EQUAL(atomic_load(&destroyed), 1 + 2 + 3 + 4 + 5);
        EQUAL(counted, 100);
    }
    printf("5 threads with variables of their own\n");
    return 0;
}
