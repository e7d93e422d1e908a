// Sleeps by each way to sleep: none ends before its time.
#include "check.h"
#include <poll.h>
#include <sys/select.h>

int main(void) {
    REPEAT(3) {
        struct timespec span = {0, 2000000};
        uint64_t before = now_ns();
        EQUAL(nanosleep(&span, NULL), 0);
        CHECK(now_ns() - before >= 2000000);
        before = now_ns() + 2000000;
        struct timespec until = {(time_t)(before / 1000000000), (long)(before % 1000000000)};
        EQUAL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
        CHECK(now_ns() >= before);
        EQUAL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
        before = now_ns();
        EQUAL(poll(NULL, 0, 2), 0);
        CHECK(now_ns() - before >= 2000000);
        before = now_ns();
        struct timeval wait = {0, 2000};
        EQUAL(select(0, NULL, NULL, NULL, &wait), 0);
        CHECK(now_ns() - before >= 2000000);
        EQUAL(wait.tv_usec, 0);
        before = now_ns();
        EQUAL(ppoll(NULL, 0, &span, NULL), 0);
        CHECK(now_ns() - before >= 2000000);
    }
    printf("5 ways to sleep\n");
    return 0;
}
