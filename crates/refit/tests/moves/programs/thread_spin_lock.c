// A lock that spins: its word is seen by all, wherever they are, and its holder is never frozen for good.
#include "check.h"

static pthread_spinlock_t lock;
static uint64_t counter;

static void *run(void *argument) {
    for (int i = 0; i < 2000; i++) {
        while (pthread_spin_trylock(&lock) == EBUSY)
            sched_yield();
        counter++;
        EQUAL(pthread_spin_unlock(&lock), 0);
    }
    return argument;
}

int main(void) {
    EQUAL(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE), 0);
    REPEAT(2) {
        counter = 0;
        pthread_t others[2] = {start(run, NULL), start(run, NULL)};
        run(NULL);
        join(others[0]);
        join(others[1]);
        EQUAL(counter, 6000);
    }
    printf("counted by 3 threads\n");
    return 0;
}
