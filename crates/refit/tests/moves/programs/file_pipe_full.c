// A pipe that is full or empty and must not be waited for; and one that is waited for until there is room.
#include "check.h"

static int ends_[2];

static void *drain(void *argument) {
    uint8_t bytes[PAGE];
    for (size_t left = (size_t)(uintptr_t)argument; left > 0;) {
        ssize_t got = read(ends_[0], bytes, left < sizeof(bytes) ? left : sizeof(bytes));
        if (got == -1 && errno == EAGAIN) {
            sched_yield();
            continue;
        }
        CHECK(got > 0);
        left -= (size_t)got;
    }
    return NULL;
}

int main(void) {
    uint8_t bytes[PAGE] = {0};
    EQUAL(pipe2(ends_, O_NONBLOCK), 0);
    EQUAL(fcntl(ends_[1], F_SETPIPE_SZ, 4 * PAGE), 4 * PAGE);
    REPEAT(3) {
        size_t room = 0;
        CHECK(read(ends_[0], bytes, 1) == -1 && errno == EAGAIN);
        for (ssize_t got; (got = write(ends_[1], bytes, sizeof(bytes))) > 0;)
            room += (size_t)got;
        EQUAL(errno, EAGAIN);
        EQUAL(room, 4 * PAGE);
        EQUAL(fcntl(ends_[1], F_SETFL, 0), 0);
        pthread_t other = start(drain, (void *)(uintptr_t)(room + 3 * sizeof(bytes)));
        for (int i = 0; i < 3; i++)
            EQUAL(write(ends_[1], bytes, sizeof(bytes)), sizeof(bytes));
        join(other);
        EQUAL(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
    }
    printf("full, empty, and waited for\n");
    return 0;
}
