// Readiness as poll and select tell it: to read, to write, hung up, not open.
#include "check.h"
#include <poll.h>
#include <sys/select.h>

int main(void) {
    REPEAT(5) {
        int one[2], two[2];
        EQUAL(pipe(one), 0);
        EQUAL(pipe(two), 0);
        EQUAL(write(one[1], "x", 1), 1);
        EQUAL(close(two[1]), 0);
        struct pollfd polled[] = {{one[0], POLLIN, 0}, {one[1], POLLOUT, 0}, {two[0], POLLIN, 0}, {-1, POLLIN, 9}, {two[1], 0, 0}};
        EQUAL(poll(polled, 5, -1), 4);
        EQUAL(polled[0].revents, POLLIN);
        EQUAL(polled[1].revents, POLLOUT);
        EQUAL(polled[2].revents, POLLHUP);
        EQUAL(polled[3].revents, 0);
        EQUAL(polled[4].revents, POLLNVAL);
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(one[0], &in);
        FD_SET(two[0], &in);
        FD_SET(one[1], &out);
        EQUAL(select(two[0] + 1, &in, &out, NULL, NULL), 3);
        CHECK(FD_ISSET(one[0], &in) && FD_ISSET(two[0], &in) && FD_ISSET(one[1], &out));
        EQUAL(close(one[0]), 0);
        EQUAL(poll(&polled[1], 1, -1), 1);
        CHECK(polled[1].revents & POLLERR);
        EQUAL(close(one[1]), 0);
        EQUAL(close(two[0]), 0);
    }
    printf("4 kinds of readiness\n");
    return 0;
}
