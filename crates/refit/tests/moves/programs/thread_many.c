// Many threads at once, all of which wait, compute and end together.
#include "check.h"

#define THREADS 64

static pthread_barrier_t barrier;
static atomic_ullong sum;

static void *run(void *argument) {
    uint64_t seed = (uintptr_t)argument, own = 0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 500; i++)
        own += next_random(&seed) % 1000;
    atomic_fetch_add(&sum, own);
    pthread_barrier_wait(&barrier);
    return (void *)own;
}

int main(void) {
    EQUAL(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    uint64_t first = 0;
    REPEAT(2) {
        pthread_t threads[THREADS];
        uint64_t whole = 0;
        atomic_store(&sum, 0);
        for (uintptr_t i = 0; i < THREADS; i++)
            threads[i] = start(run, (void *)(i + 1));
        for (int i = 0; i < THREADS; i++)
            whole += (uintptr_t)join(threads[i]);
        EQUAL(whole, atomic_load(&sum));
        first = first ? first : whole;
        EQUAL(whole, first);
    }
    printf("%d threads at once: %llu\n", THREADS, (unsigned long long)first);
    return 0;
}
