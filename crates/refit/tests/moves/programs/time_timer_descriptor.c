// Timers that are read from a descriptor: how often they have run out, none of it lost.
#include "check.h"
#include <poll.h>
#include <sys/timerfd.h>

int main(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    CHECK(fd >= 0);
    REPEAT(3) {
        struct itimerspec every = {{0, 500000}, {0, 500000}}, left;
        uint64_t count = 0, sum = 0, begun = now_ns();
        EQUAL(timerfd_settime(fd, 0, &every, NULL), 0);
        while (sum < 20) {
            EQUAL(read(fd, &count, sizeof(count)), 8);
            CHECK(count > 0);
            sum += count;
        }
        uint64_t passed = now_ns() - begun;
        CHECK(passed >= sum * 500000);
        EQUAL(timerfd_gettime(fd, &left), 0);
        EQUAL(left.it_interval.tv_nsec, 500000);
        struct itimerspec never = {{0, 0}, {0, 0}};
        EQUAL(timerfd_settime(fd, 0, &never, NULL), 0);
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        EQUAL(poll(&polled, 1, 1), 0);
    }
    printf("20 times at least, and not too early\n");
    return 0;
}
