// Counters that are descriptors: what was added is read, once, and who has nothing to read waits.
#include "check.h"
#include <sys/eventfd.h>

static int counter, back;

static void *run(void *argument) {
    uint64_t sum = 0, value;
    while (sum < 100 * 101 / 2) {
        EQUAL(read(counter, &value, 8), 8);
        CHECK(value > 0);
        sum += value;
    }
    EQUAL(write(back, &sum, 8), 8);
    return argument;
}

int main(void) {
    uint64_t value;
    counter = eventfd(0, EFD_CLOEXEC);
    back = eventfd(0, EFD_CLOEXEC);
    int places = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);
    CHECK(counter >= 0 && back >= 0 && places >= 0);
    REPEAT(2) {
        pthread_t other = start(run, NULL);
        for (value = 1; value <= 100; value++)
            EQUAL(write(counter, &value, 8), 8);
        EQUAL(read(back, &value, 8), 8);
        EQUAL(value, 100 * 101 / 2);
        join(other);
        for (int i = 0; i < 3; i++)
            CHECK(read(places, &value, 8) == 8 && value == 1);
        CHECK(read(places, &value, 8) == -1 && errno == EAGAIN);
        value = 3;
        EQUAL(write(places, &value, 8), 8);
    }
    printf("added and taken\n");
    return 0;
}
