// One thread ends the process while others compute, wait and sleep: none of them goes on.
#include "check.h"

static atomic_int ready;
static int ends_[2];

static void *computes(void *argument) {
    atomic_fetch_add(&ready, 1);
    for (uint64_t i = 0;; i++)
        used(i);
    return argument;
}

static void *waits(void *argument) {
    char byte;
    atomic_fetch_add(&ready, 1);
    EQUAL(read(ends_[0], &byte, 1), 1);
    return argument;
}

static void *ends_it(void *argument) {
    await(&ready, 3);
    exit((int)(intptr_t)argument);
}

int main(void) {
    EQUAL(pipe(ends_), 0);
    int code = 0;
    REPEAT(5) {
        code = code % 100 + 1;
        pid_t child = fork();
        if (child == 0) {
            start(computes, NULL);
            start(computes, NULL);
            start(waits, NULL);
            start(ends_it, (void *)(intptr_t)code);
            for (;;)
                pause();
        }
        ends(child, code);
    }
    printf("one ended all\n");
    return 0;
}
