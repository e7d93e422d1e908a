// Who is at the other end of a socket, by the number that the program knows it by.
#include "check.h"
#include <sys/socket.h>

int main(void) {
    int pair[2], on = 1;
    EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    EQUAL(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    struct ucred peer;
    socklen_t size = sizeof(peer);
    EQUAL(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
    CHECK(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid());
    REPEAT(5) {
        for (int by_child = 0; by_child < 2; by_child++) {
            pid_t sender = by_child ? fork() : getpid();
            if (sender == 0)
                _exit(send(pair[1], "x", 1, 0) == 1 ? 0 : 1);
            if (!by_child)
                EQUAL(send(pair[1], "x", 1, 0), 1);
            char byte;
            _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(struct ucred))];
            struct iovec part = {&byte, 1};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
            EQUAL(recvmsg(pair[0], &message, 0), 1);
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            CHECK(header != NULL && header->cmsg_type == SCM_CREDENTIALS);
            memcpy(&peer, CMSG_DATA(header), sizeof(peer));
            EQUAL(peer.pid, sender);
            CHECK(peer.uid == getuid());
            if (by_child)
                ends(sender, 0);
        }
    }
    printf("known by their numbers\n");
    return 0;
}
