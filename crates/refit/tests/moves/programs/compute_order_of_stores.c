// What x86 promises of the order of stores: who has seen the second of two sees the first, on other pages too; and with
// fences, not both of two threads read what was there before the other's store.
#include "check.h"

#define TURNS 1000

static uint8_t *area;
static pthread_barrier_t barrier;
static unsigned seen[2];

static _Atomic unsigned *word(int page) { return (_Atomic unsigned *)(area + page * PAGE + 64 * page); }

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (unsigned i = 1; i <= TURNS; i++) {
        if (own == 0) {
            atomic_store_explicit(word(0), i, memory_order_relaxed);
            atomic_store_explicit(word(1), i, memory_order_release);
        } else {
            unsigned second = atomic_load_explicit(word(1), memory_order_acquire);
            CHECK(atomic_load_explicit(word(0), memory_order_relaxed) >= second);
        }
        if (i % 20)
            continue;
        pthread_barrier_wait(&barrier);
        atomic_store_explicit(word(2 + own), i, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        seen[own] = atomic_load_explicit(word(3 - own), memory_order_relaxed);
        pthread_barrier_wait(&barrier);
        CHECK(seen[0] == i || seen[1] == i);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void) {
    area = pages(4);
    EQUAL(pthread_barrier_init(&barrier, NULL, 2), 0);
    REPEAT(2) {
        memset(area, 0, 4 * PAGE);
        pthread_t other = start(run, (void *)1);
        run((void *)0);
        join(other);
    }
    printf("%d stores in their order\n", TURNS);
    return 0;
}
