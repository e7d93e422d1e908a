// Sockets that wait for a time only, in both directions.
#include "check.h"
#include <sys/socket.h>

int main(void) {
    int pair[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    // Kept by the kernel in ticks of its own, which may be 4 ms.
    struct timeval limit = {0, 8000}, told;
    socklen_t size = sizeof(told);
    EQUAL(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, size), 0);
    EQUAL(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, size), 0);
    EQUAL(getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &told, &size), 0);
    CHECK(told.tv_sec == 0 && told.tv_usec >= 8000);
    static char bytes[1 << 16];
    REPEAT(2) {
        uint64_t before = now_ns();
        CHECK(recv(pair[0], bytes, 1, 0) == -1 && errno == EAGAIN);
        CHECK(now_ns() - before >= 4000000);
        size_t sent = 0, back = 0;
        for (ssize_t now; (now = send(pair[0], bytes, sizeof(bytes), 0)) > 0;)
            sent += (size_t)now;
        EQUAL(errno, EAGAIN);
        for (ssize_t now; (now = recv(pair[1], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;)
            back += (size_t)now;
        EQUAL(back, sent);
    }
    printf("waited for a time only\n");
    return 0;
}
