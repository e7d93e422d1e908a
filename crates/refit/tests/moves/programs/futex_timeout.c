// Waits that nobody ends: for a time, until a time, by either clock; they end with ETIMEDOUT and not too early.
#include "check.h"
#include <linux/futex.h>

int main(void) {
    int word = 5;
    REPEAT(5) {
        struct timespec span = {0, 2000000}, until, real;
        uint64_t before = now_ns();
        CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &span, NULL, 0) == -1 && errno == ETIMEDOUT);
        CHECK(now_ns() >= before + 2000000);
        before = now_ns() + 2000000;
        until = (struct timespec){(time_t)(before / 1000000000), (long)(before % 1000000000)};
        CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 5, &until, NULL, ~0) == -1 && errno == ETIMEDOUT);
        CHECK(now_ns() >= before);
        // Long past.
        EQUAL(clock_gettime(CLOCK_REALTIME, &real), 0);
        real.tv_sec -= 10;
        int wait = FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME;
        CHECK(syscall(SYS_futex, &word, wait, 5, &real, NULL, ~0) == -1 && errno == ETIMEDOUT);
    }
    printf("3 kinds of ends\n");
    return 0;
}
