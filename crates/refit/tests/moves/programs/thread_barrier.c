// Threads that go through phases together: none is in the next one while another is in the last.
#include "check.h"

#define THREADS 4
#define PHASES 100

static pthread_barrier_t barrier;
static atomic_int arrived[PHASES], serial;

static void *run(void *argument) {
    for (int phase = 0; phase < PHASES; phase++) {
        if (phase > 0)
            EQUAL(atomic_load(&arrived[phase - 1]), THREADS);
        atomic_fetch_add(&arrived[phase], 1);
        int got = pthread_barrier_wait(&barrier);
        CHECK(got == 0 || got == PTHREAD_BARRIER_SERIAL_THREAD);
        atomic_fetch_add(&serial, got == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return argument;
}

int main(void) {
    EQUAL(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    REPEAT(2) {
        pthread_t threads[THREADS];
        for (int phase = 0; phase < PHASES; phase++)
            atomic_store(&arrived[phase], 0);
        atomic_store(&serial, 0);
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(run, NULL);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        EQUAL(atomic_load(&serial), PHASES);
    }
    printf("%d phases of %d threads\n", PHASES, THREADS);
    return 0;
}
