// Frames of hundreds of kilobytes, of sizes that are known only when they are made.
#include "check.h"
#include <alloca.h>

__attribute__((noinline)) static uint64_t use(size_t size) {
    volatile uint8_t *frame = alloca(size);
    uint64_t sum = 0;
    for (size_t i = size; i > 0; i -= i < 1000 ? i : 1000)
        frame[i - 1] = (uint8_t)(i ^ size);
    for (size_t i = size; i > 0; i -= i < 1000 ? i : 1000) {
        CHECK(frame[i - 1] == (uint8_t)(i ^ size));
        sum += frame[i - 1];
    }
    return sum;
}

static void *run(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    for (int i = 0; i < 20; i++)
        use(next_random(&seed) % 500000 + 1);
    return NULL;
}

int main(void) {
    REPEAT(3) {
        pthread_t other = start(run, (void *)5);
        run((void *)7);
        join(other);
    }
    printf("frames of up to 500000 bytes\n");
    return 0;
}
