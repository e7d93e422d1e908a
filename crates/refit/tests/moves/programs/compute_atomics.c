// Counters that threads change at once with every kind of atomic instruction.
#include "check.h"

#define THREADS 3
#define TURNS 5000

static atomic_ulong added, exchanged;
static atomic_uint bits;
static atomic_uchar small;
static _Atomic uint64_t over;

static void *run(void *argument) {
    unsigned long own = (uintptr_t)argument, kept = 0;
    for (int i = 0; i < TURNS; i++) {
        atomic_fetch_add(&added, own);
        atomic_fetch_add(&small, 1);
        atomic_fetch_xor(&bits, 1u << own);
        uint64_t seen = atomic_load(&over);
        while (!atomic_compare_exchange_weak(&over, &seen, seen * 1 + own))
            ;
        // What is put in is taken out by somebody, once.
        kept += atomic_exchange(&exchanged, own);
    }
    return (void *)kept;
}

int main(void) {
    REPEAT(2) {
        pthread_t threads[THREADS];
        unsigned long kept = 0;
        atomic_store(&added, 0);
        atomic_store(&exchanged, 0);
        atomic_store(&bits, 0);
        atomic_store(&small, 0);
        atomic_store(&over, 0);
        for (uintptr_t i = 0; i < THREADS; i++)
            threads[i] = start(run, (void *)(i + 1));
        for (int i = 0; i < THREADS; i++)
            kept += (uintptr_t)join(threads[i]);
        EQUAL(atomic_load(&added), TURNS * 6);
        EQUAL(atomic_load(&over), TURNS * 6);
        EQUAL(kept + atomic_load(&exchanged), TURNS * 6);
        EQUAL(atomic_load(&small), (uint8_t)(TURNS * THREADS));
        EQUAL(atomic_load(&bits), 0);
    }
    printf("%d turns of %d threads\n", TURNS, THREADS);
    return 0;
}
