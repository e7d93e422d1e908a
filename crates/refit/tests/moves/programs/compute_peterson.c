// Mutual exclusion by loads and stores alone, which stands on the order in which others see them.
#include "check.h"

static atomic_int wants[2], turn;
static volatile uint64_t counter;

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int i = 0; i < 5000; i++) {
        atomic_store(&wants[own], 1);
        atomic_store(&turn, !own);
        for (int spins = 0; atomic_load(&wants[!own]) && atomic_load(&turn) != own; spins++)
            if (spins > 100)
                sched_yield();
        counter = counter + 1;
        atomic_store(&wants[own], 0);
    }
    return NULL;
}

int main(void) {
    REPEAT(2) {
        counter = 0;
        pthread_t other = start(run, (void *)1);
        run((void *)0);
        join(other);
        EQUAL(counter, 10000);
    }
    printf("counted by 2 threads\n");
    return 0;
}
