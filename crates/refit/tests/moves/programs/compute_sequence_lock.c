// Readers that look again if somebody has written meanwhile: what they take is never half of the old and half of the new.
#include "check.h"

#define WORDS 600

static atomic_uint sequence;
static atomic_uint words[WORDS];
static atomic_int done;

static void *read_(void *argument) {
    uintptr_t taken = 0;
    while (!atomic_load(&done) || taken == 0) {
        unsigned before = atomic_load(&sequence), copy[WORDS];
        if (before % 2) {
            sched_yield();
            continue;
        }
        for (int i = 0; i < WORDS; i++)
            copy[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
        // Pairs with the writer's: who has seen a word of a turn sees that the turn has begun.
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&sequence, memory_order_relaxed) != before)
            continue;
        for (int i = 0; i < WORDS; i++)
            EQUAL(copy[i], before / 2 + (unsigned)i);
        taken++;
    }
    return argument;
}

int main(void) {
    for (unsigned i = 0; i < WORDS; i++)
        atomic_store(&words[i], i);
    pthread_t readers[2] = {start(read_, NULL), start(read_, NULL)};
    REPEAT(20) {
        unsigned turn = atomic_load(&sequence) / 2 + 1;
        atomic_fetch_add_explicit(&sequence, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        for (unsigned i = 0; i < WORDS; i++)
            atomic_store_explicit(&words[i], turn + i, memory_order_relaxed);
        atomic_store_explicit(&sequence, 2 * turn, memory_order_release);
        usleep(50);
    }
    atomic_store(&done, 1);
    join(readers[0]);
    join(readers[1]);
    printf("nothing by halves\n");
    return 0;
}
