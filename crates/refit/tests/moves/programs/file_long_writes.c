// Writes of more than there is room for wait until all is written, to pipes and sockets, however often their thread is moved meanwhile; what cannot be written
// ends them with what was.
#include "check.h"
#include <sys/socket.h>

#define LENGTH 700000

static int ends_[2];
static uint8_t sent_[LENGTH];

static void *receive(void *argument) {
    static uint8_t got[30000];
    for (size_t all = 0; all < LENGTH;) {
        ssize_t now = read(ends_[0], got, sizeof(got));
        CHECK(now > 0);
        EQUAL(memcmp(got, sent_ + all, (size_t)now), 0);
        all += (size_t)now;
        struct timespec moment = {0, 300000};
        nanosleep(&moment, NULL);
    }
    return argument;
}

// Reads a part, and then nobody does.
static void *receive_some(void *argument) {
    static uint8_t got[100000];
    for (size_t all = 0; all < sizeof(got);) {
        ssize_t now = read(ends_[0], got, 1000);
        CHECK(now > 0);
        all += (size_t)now;
    }
    EQUAL(close(ends_[0]), 0);
    return argument;
}

static void wholly(bool socket) {
    pthread_t receiver = start(receive, NULL);
    size_t first = LENGTH / 3;
    EQUAL(socket ? send(ends_[1], sent_, first, 0) : write(ends_[1], sent_, first), first);
    EQUAL(write(ends_[1], sent_ + first, LENGTH - first), LENGTH - first);
    join(receiver);
    EQUAL(close(ends_[0]), 0);
    EQUAL(close(ends_[1]), 0);
}

int main(void) {
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    uint64_t bytes = 5;
    for (size_t i = 0; i < LENGTH; i++)
        sent_[i] = (uint8_t)next_random(&bytes);
    REPEAT(2) {
        EQUAL(pipe(ends_), 0);
        wholly(false);
        EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
        wholly(true);
        EQUAL(pipe(ends_), 0);
        pthread_t receiver = start(receive_some, NULL);
        ssize_t part = write(ends_[1], sent_, LENGTH);
        CHECK(part >= 100000 && part < LENGTH);
        join(receiver);
        CHECK(write(ends_[1], sent_, 1) == -1 && errno == EPIPE);
        EQUAL(close(ends_[1]), 0);
    }
    printf("all is written\n");
    return 0;
}
