// Threads that write bytes beside each other, in the same words and pages: no store undoes another's.
#include "check.h"

#define THREADS 4
#define COUNT (2 * PAGE)

static volatile uint8_t *area;

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int turn = 1; turn <= 20; turn++)
        for (int i = own; i < COUNT; i += THREADS) {
            CHECK(area[i] == (uint8_t)(turn - 1));
            area[i] = (uint8_t)turn;
        }
    return NULL;
}

int main(void) {
    area = pages(COUNT / PAGE);
    REPEAT(2) {
        pthread_t threads[THREADS];
        memset((void *)area, 0, COUNT);
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(run, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        for (int i = 0; i < COUNT; i++)
            EQUAL(area[i], 20);
    }
    printf("%d threads beside each other\n", THREADS);
    return 0;
}
