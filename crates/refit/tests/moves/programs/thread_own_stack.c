// Threads on stacks that the program has made for them, down to their last page.
#include "check.h"
#include <limits.h>

#define COUNT 32

static uint64_t dive(unsigned depth) {
    volatile uint8_t frame[1500];
    memset((void *)frame, (int)depth, sizeof(frame));
    uint64_t below = depth ? dive(depth - 1) : 0;
    for (size_t i = 0; i < sizeof(frame); i++)
        CHECK(frame[i] == (uint8_t)depth);
    return below + frame[depth % sizeof(frame)];
}

static void *run(void *argument) {
    char here;
    CHECK(&here > (char *)argument && &here < (char *)argument + COUNT * PAGE);
    return (void *)(uintptr_t)dive(50);
}

int main(void) {
    REPEAT(5) {
        void *stack = pages(COUNT);
        pthread_attr_t attributes;
        pthread_t thread;
        EQUAL(pthread_attr_init(&attributes), 0);
        EQUAL(pthread_attr_setstack(&attributes, stack, COUNT * PAGE), 0);
        EQUAL(pthread_create(&thread, &attributes, run, stack), 0);
        EQUAL((uintptr_t)join(thread), 50 * 51 / 2);
        EQUAL(munmap(stack, COUNT * PAGE), 0);
    }
    printf("51 frames on a stack of its own\n");
    return 0;
}
