// Threads that nobody joins: their stacks are given back, and all of them have run.
#include "check.h"

static atomic_int ran;

static void *run(void *argument) {
    char stack[3 * PAGE];
    memset(stack, (int)(intptr_t)argument, sizeof(stack));
    used((uint64_t)stack[PAGE]);
    atomic_fetch_add(&ran, 1);
    return NULL;
}

int main(void) {
    pthread_attr_t attributes;
    EQUAL(pthread_attr_init(&attributes), 0);
    EQUAL(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED), 0);
    REPEAT(3) {
        atomic_store(&ran, 0);
        for (int i = 0; i < 20; i++) {
            pthread_t thread;
            EQUAL(pthread_create(&thread, &attributes, run, (void *)(intptr_t)i), 0);
        }
        await(&ran, 20);
    }
    printf("20 threads at a time\n");
    return 0;
}
