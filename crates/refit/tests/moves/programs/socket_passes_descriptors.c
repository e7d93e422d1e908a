// Descriptors that are sent from process to process: the same open files, under other numbers, also while they are on their way.
#include "check.h"
#include <sys/socket.h>

union room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

static void pass(int to, const int *fds) {
    union room room;
    char byte = 'd';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof(room)};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, 2 * sizeof(int));
    EQUAL(sendmsg(to, &message, 0), 1);
}

static void take(int from, int *fds) {
    union room room;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof(room)};
    EQUAL(recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(2 * sizeof(int)));
    memcpy(fds, CMSG_DATA(header), 2 * sizeof(int));
    CHECK(fcntl(fds[0], F_GETFD) == FD_CLOEXEC);
}

int main(void) {
    int pair[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    REPEAT(5) {
        int pipes[2], fds[2];
        char text[8];
        pid_t child = fork();
        if (child == 0) {
            take(pair[1], fds);
            EQUAL(read(fds[0], text, 5), 5);
            EQUAL(write(fds[1], text, 5), 5);
            _exit(0);
        }
        int file = open("passed", O_CREAT | O_TRUNC | O_RDWR, 0600);
        EQUAL(pipe(pipes), 0);
        EQUAL(write(file, "0123456", 7), 7);
        EQUAL(lseek(file, 1, SEEK_SET), 1);
        pass(pair[0], (int[]){file, pipes[1]});
        close(pipes[1]);
        EQUAL(read(pipes[0], text, 5), 5);
        EQUAL(memcmp(text, "12345", 5), 0);
        EQUAL(lseek(file, 0, SEEK_CUR), 6);
        EQUAL(read(pipes[0], text, 1), 0);
        close(pipes[0]);
        close(file);
        ends(child, 0);
    }
    printf("2 descriptors at a time\n");
    return 0;
}
