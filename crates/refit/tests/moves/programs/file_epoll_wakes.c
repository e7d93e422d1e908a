// A thread that waits for readiness is woken by what another writes, also where that was added while it waited.
#include "check.h"
#include <sys/epoll.h>

static int set, pipes[4][2];

static void *wait_(void *argument) {
    uint64_t sum = 0;
    for (int got = 0; got < 40;) {
        struct epoll_event events[4];
        int now = epoll_wait(set, events, 4, -1);
        if (now == -1 && errno == EINTR)
            continue;
        CHECK(now > 0);
        for (int i = 0; i < now; i++, got++) {
            uint8_t byte;
            EQUAL(read(events[i].data.fd, &byte, 1), 1);
            sum += byte;
        }
    }
    EQUAL(sum, 40 * 41 / 2);
    return argument;
}

int main(void) {
    set = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < 4; i++)
        EQUAL(pipe(pipes[i]), 0);
    REPEAT(2) {
        pthread_t other = start(wait_, NULL);
        for (uint8_t i = 1; i <= 40; i++) {
            if (i % 10 == 1) {
                struct epoll_event event = {EPOLLIN, {.fd = pipes[i / 10][0]}};
                EQUAL(epoll_ctl(set, EPOLL_CTL_ADD, pipes[i / 10][0], &event), 0);
            }
            EQUAL(write(pipes[(i - 1) / 10][1], &i, 1), 1);
        }
        join(other);
        for (int i = 0; i < 4; i++)
            EQUAL(epoll_ctl(set, EPOLL_CTL_DEL, pipes[i][0], NULL), 0);
    }
    printf("woken for 40 bytes\n");
    return 0;
}
