// Many connections at once that one thread serves by readiness: accepted, read, answered and closed, each by itself.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define CLIENTS 12

static struct sockaddr_in address = {.sin_family = AF_INET};
static int listener;

static void *serve(void *argument) {
    int set = epoll_create1(0), closed = 0;
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, events[4];
    EQUAL(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event), 0);
    while (closed < CLIENTS) {
        int got = epoll_wait(set, events, 4, -1);
        CHECK(got > 0 || errno == EINTR);
        for (int i = 0; i < got; i++) {
            int fd = events[i].data.fd;
            uint32_t number;
            if (fd == listener) {
                event.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                CHECK(event.data.fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
            } else if (recv(fd, &number, 4, 0) == 4) {
                number *= 3;
                EQUAL(send(fd, &number, 4, MSG_NOSIGNAL), 4);
            } else {
                EQUAL(close(fd), 0);
                closed++;
            }
        }
    }
    close(set);
    return argument;
}

int main(void) {
    socklen_t size = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (void *)&address, size) == 0 && listen(listener, CLIENTS) == 0);
    EQUAL(getsockname(listener, (void *)&address, &size), 0);
    REPEAT(2) {
        pthread_t server = start(serve, NULL);
        int fds[CLIENTS];
        for (uint32_t i = 0; i < CLIENTS; i++) {
            fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            EQUAL(connect(fds[i], (void *)&address, size), 0);
            EQUAL(send(fds[i], &i, 4, MSG_NOSIGNAL), 4);
        }
        for (int i = CLIENTS - 1; i >= 0; i--) {
            uint32_t number;
            EQUAL(recv(fds[i], &number, 4, MSG_WAITALL), 4);
            EQUAL(number, 3 * i);
            close(fds[i]);
        }
        join(server);
    }
    printf("%d connections at a time\n", CLIENTS);
    return 0;
}
