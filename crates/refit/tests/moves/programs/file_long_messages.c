// What is written from several pieces, sent, and received until all is there is whole, whoever stops its thread meanwhile.
#include "check.h"

#include <sys/socket.h>
#include <sys/uio.h>

enum { WHOLE = 600000 };
static char bytes[WHOLE], got[WHOLE], part[4096];
static int side[2], receives;

static void *other(void *unused) {
    struct timespec moment = {0, 20000};
    for (size_t all = 0; all < WHOLE;) {
        size_t most = WHOLE - all < sizeof part ? WHOLE - all : sizeof part;
        ssize_t size = receives ? write(side[1], bytes + all, most) : read(side[1], part, most);
        CHECK(size > 0);
        if (!receives)
            CHECK(memcmp(part, bytes + all, (size_t)size) == 0);
        all += (size_t)size;
        if (all % 16 == 0)
            nanosleep(&moment, 0);
    }
    return unused;
}

static void transfer(int how) {
    int pipes[2];
    if (how == 0) {
        CHECK(pipe(pipes) == 0);
        side[0] = pipes[1], side[1] = pipes[0];
    } else {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, side) == 0);
    }
    receives = how >= 3;
    char *from = receives ? got : bytes;
    struct iovec pieces[] = {{from, 1000}, {from, 0}, {from + 1000, 200000}, {from + 201000, WHOLE - 201000}}, before[4];
    memcpy(before, pieces, sizeof before);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 4};
    pthread_t thread;
    memset(got, 0, sizeof got);
    CHECK(pthread_create(&thread, 0, other, 0) == 0);
    ssize_t size;
    if (how <= 1)
        size = writev(side[0], pieces, 4);
    else if (how == 2)
        size = sendmsg(side[0], &message, 0);
    else if (how == 3)
        size = recvmsg(side[0], &message, MSG_WAITALL);
    else
        size = recv(side[0], got, WHOLE, MSG_WAITALL);
    EQUAL(size, WHOLE);
    CHECK(memcmp(pieces, before, sizeof before) == 0);
    CHECK(pthread_join(thread, 0) == 0);
    CHECK(!receives || memcmp(got, bytes, WHOLE) == 0);
    close(side[0]), close(side[1]);
}

int main(void) {
    for (size_t at = 0; at < WHOLE; at++)
        bytes[at] = (char)(at % 251);
    REPEAT(2)
        for (int how = 0; how < 5; how++)
            transfer(how);
    printf("all of it\n");
    return 0;
}
