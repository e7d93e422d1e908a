// A stream over TCP, answered piece by piece, between two threads: connections stay where they were made.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void whole(int fd, uint8_t *bytes, size_t length) {
    while (length > 0) {
        ssize_t got = recv(fd, bytes, length, 0);
        CHECK(got > 0);
        bytes += got, length -= (size_t)got;
    }
}

static void *answer(void *argument) {
    int listener = (int)(intptr_t)argument, fd = accept(listener, NULL, NULL);
    uint8_t bytes[3000];
    CHECK(fd >= 0);
    for (int i = 1; i <= 40; i++) {
        size_t length = (size_t)(i * 70);
        whole(fd, bytes, length);
        for (size_t at = 0; at < length; at++)
            bytes[at] ^= 0x5a;
        EQUAL(send(fd, bytes, length, MSG_NOSIGNAL), length);
    }
    EQUAL(recv(fd, bytes, 1, 0), 0);
    close(fd);
    return NULL;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK(bind(listener, (void *)&address, size) == 0 && listen(listener, 5) == 0);
    EQUAL(getsockname(listener, (void *)&address, &size), 0);
    uint64_t seed = 111;
    REPEAT(2) {
        pthread_t other = start(answer, (void *)(intptr_t)listener);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        EQUAL(connect(fd, (void *)&address, size), 0);
        EQUAL(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
        for (int i = 1; i <= 40; i++) {
            uint8_t bytes[3000], back[3000];
            size_t length = (size_t)(i * 70);
            for (size_t at = 0; at < length; at++)
                bytes[at] = (uint8_t)next_random(&seed);
            EQUAL(send(fd, bytes, length, MSG_NOSIGNAL), length);
            whole(fd, back, length);
            for (size_t at = 0; at < length; at++)
                EQUAL(back[at], bytes[at] ^ 0x5a);
        }
        EQUAL(shutdown(fd, SHUT_WR), 0);
        join(other);
        EQUAL(recv(fd, &on, 1, 0), 0);
        on = 1;
        close(fd);
    }
    printf("40 questions at a time\n");
    return 0;
}
