// Connections that are not waited for: refused, in progress, full, and looked at without being taken.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), closed = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in nobody = address;
    // Bound, but nobody listens.
    CHECK(bind(closed, (void *)&nobody, size) == 0 && getsockname(closed, (void *)&nobody, &size) == 0);
    CHECK(bind(listener, (void *)&address, size) == 0 && listen(listener, 5) == 0);
    EQUAL(getsockname(listener, (void *)&address, &size), 0);
    static uint8_t bytes[1 << 16];
    REPEAT(2) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), got = -1;
        CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
        CHECK(connect(fd, (void *)&address, size) == 0 || errno == EINPROGRESS);
        struct pollfd polled = {fd, POLLOUT, 0}, waits = {listener, POLLIN, 0};
        EQUAL(poll(&polled, 1, -1), 1);
        EQUAL(getsockopt(fd, SOL_SOCKET, SO_ERROR, &got, &(socklen_t){sizeof(got)}), 0);
        EQUAL(got, 0);
        EQUAL(poll(&waits, 1, -1), 1);
        int other = accept(listener, NULL, NULL);
        CHECK(other >= 0);
        size_t sent = 0, back = 0;
        for (ssize_t now; (now = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL)) > 0;)
            sent += (size_t)now;
        EQUAL(errno, EAGAIN);
        EQUAL(shutdown(fd, SHUT_WR), 0);
        EQUAL(recv(other, bytes, 8, MSG_PEEK | MSG_WAITALL), 8);
        for (ssize_t now; (now = recv(other, bytes, sizeof(bytes), 0)) > 0;)
            back += (size_t)now;
        EQUAL(back, sent);
        close(other);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (void *)&nobody, size) == -1 && errno == ECONNREFUSED);
        close(fd);
    }
    printf("refused, in progress and full\n");
    return 0;
}
