// A stream through a pipe, in pieces of all sizes, from one thread to another: no byte twice, none missing.
#include "check.h"

#define LENGTH 200000

static int ends_[2];

static void *send(void *argument) {
    uint64_t bytes = 7, sizes = 9;
    uint8_t piece[5000];
    for (size_t sent = 0; sent < LENGTH;) {
        size_t size = next_random(&sizes) % sizeof(piece) + 1;
        size = size > LENGTH - sent ? LENGTH - sent : size;
        for (size_t i = 0; i < size; i++)
            piece[i] = (uint8_t)next_random(&bytes);
        EQUAL(write(ends_[1], piece, size), size);
        sent += size;
    }
    return argument;
}

int main(void) {
    EQUAL(pipe(ends_), 0);
    REPEAT(1) {
        pthread_t sender = start(send, NULL);
        uint64_t bytes = 7, sizes = 11;
        uint8_t piece[3000];
        for (size_t got = 0; got < LENGTH;) {
            size_t size = next_random(&sizes) % sizeof(piece) + 1;
            ssize_t now = read(ends_[0], piece, size > LENGTH - got ? LENGTH - got : size);
            CHECK(now > 0);
            for (ssize_t i = 0; i < now; i++)
                EQUAL(piece[i], (uint8_t)next_random(&bytes));
            got += (size_t)now;
        }
        join(sender);
    }
    printf("%d bytes at a time\n", LENGTH);
    return 0;
}
