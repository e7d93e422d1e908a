// A queue without locks, of one array with a turn for each place: each number comes out once, in the order of its sender.
#include "check.h"

#define PLACES 64
#define NUMBERS 3000

static struct {
    _Atomic unsigned turn;
    uint64_t number;
} places[PLACES];
static _Atomic unsigned head, tail;

static void put(uint64_t number) {
    unsigned at = atomic_fetch_add(&tail, 1);
    while (atomic_load_explicit(&places[at % PLACES].turn, memory_order_acquire) != at)
        sched_yield();
    places[at % PLACES].number = number;
    atomic_store_explicit(&places[at % PLACES].turn, at + 1, memory_order_release);
}

static uint64_t take(void) {
    unsigned at = atomic_fetch_add(&head, 1);
    while (atomic_load_explicit(&places[at % PLACES].turn, memory_order_acquire) != at + 1)
        sched_yield();
    uint64_t number = places[at % PLACES].number;
    atomic_store_explicit(&places[at % PLACES].turn, at + PLACES, memory_order_release);
    return number;
}

static void *send(void *argument) {
    for (uint64_t i = 1; i <= NUMBERS; i++)
        put((uint64_t)(uintptr_t)argument << 32 | i);
    return NULL;
}

static void *receive(void *argument) {
    uint64_t last[3] = {0}, sum = 0;
    (void)argument;
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t number = take(), from = number >> 32, value = number & 0xffffffff;
        CHECK(from < 3 && value > last[from]);
        last[from] = value;
        sum += value;
    }
    return (void *)(uintptr_t)sum;
}

int main(void) {
    REPEAT(1) {
        atomic_store(&head, 0);
        atomic_store(&tail, 0);
        for (unsigned i = 0; i < PLACES; i++)
            atomic_store(&places[i].turn, i);
        pthread_t threads[] = {start(send, (void *)1), start(send, (void *)2), start(receive, NULL), start(receive, NULL)};
        uint64_t sum = 0;
        for (int i = 0; i < 4; i++)
            sum += (uintptr_t)join(threads[i]);
        EQUAL(sum, (uint64_t)NUMBERS * (NUMBERS + 1));
    }
    printf("%d numbers of 2 senders to 2 receivers\n", NUMBERS);
    return 0;
}
