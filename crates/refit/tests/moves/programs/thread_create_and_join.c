// Threads that come and go: each gets its argument, and gives its result to whoever joins it.
#include "check.h"

static void *square(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    return (void *)(number * number);
}

int main(void) {
    REPEAT(3) {
        pthread_t threads[8];
        for (uintptr_t i = 0; i < 8; i++)
            threads[i] = start(square, (void *)(i + 3));
        for (uintptr_t i = 0; i < 8; i++)
            EQUAL((uintptr_t)join(threads[i]), (i + 3) * (i + 3));
    }
    printf("8 threads at a time\n");
    return 0;
}
