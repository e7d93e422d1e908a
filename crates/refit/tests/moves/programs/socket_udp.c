// Datagrams: whole, with the address of whom they are from; many in one call.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in places[2];
    int fds[2];
    for (int i = 0; i < 2; i++) {
        places[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(places[i]);
        fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        EQUAL(bind(fds[i], (void *)&places[i], size), 0);
        EQUAL(getsockname(fds[i], (void *)&places[i], &size), 0);
    }
    REPEAT(5) {
        char text[64];
        struct sockaddr_in from;
        socklen_t size = sizeof(from);
        EQUAL(sendto(fds[0], "one datagram", 12, 0, (void *)&places[1], sizeof(places[1])), 12);
        EQUAL(recvfrom(fds[1], text, 3, MSG_TRUNC, (void *)&from, &size), 12);
        CHECK(memcmp(text, "one", 3) == 0 && from.sin_port == places[0].sin_port);
        struct iovec parts[4], rooms[4];
        struct mmsghdr out[4] = {0}, in[4] = {0};
        char words[4][8], got[4][8];
        for (int i = 0; i < 4; i++) {
            snprintf(words[i], 8, "no. %d", i);
            parts[i] = (struct iovec){words[i], (size_t)i + 4};
            rooms[i] = (struct iovec){got[i], 8};
            out[i].msg_hdr = (struct msghdr){.msg_name = &places[1], .msg_namelen = sizeof(places[1]), .msg_iov = &parts[i], .msg_iovlen = 1};
            in[i].msg_hdr = (struct msghdr){.msg_iov = &rooms[i], .msg_iovlen = 1};
        }
        EQUAL(sendmmsg(fds[0], out, 4, 0), 4);
        for (int taken = 0; taken < 4;) {
            int now = recvmmsg(fds[1], in + taken, (unsigned)(4 - taken), MSG_WAITFORONE, NULL);
            CHECK(now > 0);
            taken += now;
        }
        for (int i = 0; i < 4; i++)
            CHECK(in[i].msg_len == (unsigned)i + 4 && memcmp(got[i], words[i], (size_t)i + 4) == 0);
        CHECK(recv(fds[1], text, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    }
    printf("5 datagrams at a time\n");
    return 0;
}
