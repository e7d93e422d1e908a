// A queue with several producers and consumers: each item is taken once, and the end is told to all by one broadcast.
#include "check.h"

#define ITEMS 300

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fuller = PTHREAD_COND_INITIALIZER, emptier = PTHREAD_COND_INITIALIZER;
static int queue[8], first, count, closed;

static void *produce(void *argument) {
    for (int i = 1; i <= ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        while (count == 8)
            pthread_cond_wait(&emptier, &mutex);
        queue[(first + count++) % 8] = i;
        pthread_cond_signal(&fuller);
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

static void *consume(void *argument) {
    (void)argument;
    uintptr_t sum = 0;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (count == 0 && !closed)
            pthread_cond_wait(&fuller, &mutex);
        if (count == 0) {
            pthread_mutex_unlock(&mutex);
            return (void *)sum;
        }
        sum += (uintptr_t)queue[first];
        first = (first + 1) % 8, count--;
        pthread_cond_broadcast(&emptier);
        pthread_mutex_unlock(&mutex);
    }
}

int main(void) {
    REPEAT(2) {
        closed = 0;
        pthread_t consumers[3], producers[2];
        for (int i = 0; i < 3; i++)
            consumers[i] = start(consume, NULL);
        for (int i = 0; i < 2; i++)
            producers[i] = start(produce, NULL);
        for (int i = 0; i < 2; i++)
            join(producers[i]);
        pthread_mutex_lock(&mutex);
        closed = 1;
        pthread_cond_broadcast(&fuller);
        pthread_mutex_unlock(&mutex);
        uintptr_t sum = 0;
        for (int i = 0; i < 3; i++)
            sum += (uintptr_t)join(consumers[i]);
        EQUAL(sum, ITEMS * (ITEMS + 1));
    }
    printf("%d items of 2 producers to 3 consumers\n", ITEMS);
    return 0;
}
