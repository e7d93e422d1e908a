// Readiness of many descriptors: by level, by edge, once, and of one such set within another.
#include "check.h"
#include <sys/epoll.h>

static int waits(int set, struct epoll_event *events) {
    int got;
    do
        got = epoll_wait(set, events, 8, 0);
    while (got == -1 && errno == EINTR);
    return got;
}

int main(void) {
    int set = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(EPOLL_CLOEXEC), pipes[3][2];
    static const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    CHECK(set >= 0 && outer >= 0);
    for (uint32_t i = 0; i < 3; i++) {
        EQUAL(pipe2(pipes[i], O_NONBLOCK), 0);
        struct epoll_event event = {kinds[i], {.u64 = 1ull << 40 | i}};
        EQUAL(epoll_ctl(set, EPOLL_CTL_ADD, pipes[i][0], &event), 0);
    }
    struct epoll_event nested = {EPOLLIN, {.u64 = 77}}, events[8];
    EQUAL(epoll_ctl(outer, EPOLL_CTL_ADD, set, &nested), 0);
    REPEAT(5) {
        EQUAL(waits(outer, events), 0);
        for (int i = 0; i < 3; i++)
            EQUAL(write(pipes[i][1], "ab", 2), 2);
        EQUAL(waits(outer, events), 1);
        EQUAL(events[0].data.u64, 77);
        uint64_t seen = 0;
        EQUAL(waits(set, events), 3);
        for (int i = 0; i < 3; i++)
            seen |= 1u << (events[i].data.u64 ^ 1ull << 40);
        EQUAL(seen, 7);
        // That by level only.
        EQUAL(waits(set, events), 1);
        EQUAL(events[0].data.u64, 1ull << 40);
        char bytes[4];
        for (int i = 0; i < 3; i++)
            EQUAL(read(pipes[i][0], bytes, 4), 2);
        EQUAL(waits(set, events), 0);
        struct epoll_event again = {kinds[2], {.u64 = 1ull << 40 | 2}};
        EQUAL(epoll_ctl(set, EPOLL_CTL_MOD, pipes[2][0], &again), 0);
    }
    printf("3 kinds of readiness\n");
    return 0;
}
