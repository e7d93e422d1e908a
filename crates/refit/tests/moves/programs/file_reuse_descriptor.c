// A number becomes one file, then another, then none, while threads read by it: each reads one or the other in whole, or is told that there is none. A thread with
// descriptors of its own reads what it has under that number.
#include "check.h"

#define SIZE 3000

static atomic_bool over;
static atomic_int fd;

static void *reads(void *argument) {
    (void)argument;
    uint8_t *bytes = pages(1);
    while (!over) {
        memset(bytes, 'x', SIZE);
        ssize_t got = pread(fd, bytes, SIZE, 0);
        if (got == -1) {
            EQUAL(errno, EBADF);
            continue;
        }
        EQUAL(got, SIZE);
        CHECK(bytes[0] == 'a' || bytes[0] == 'b');
        for (int i = 0; i < SIZE; i++)
            EQUAL(bytes[i], bytes[0]);
    }
    return NULL;
}

static void *has_its_own(void *argument) {
    (void)argument;
    char *byte = (void *)pages(1);
    EQUAL(unshare(CLONE_FILES), 0);
    int own = open("a", O_RDONLY);
    CHECK(own >= 0 && dup2(own, fd) == fd);
    while (!over) {
        byte[0] = 'x';
        EQUAL(pread(fd, byte, 1, 7), 1);
        EQUAL(byte[0], 'a');
    }
    return NULL;
}

static void made(const char *name) {
    uint8_t bytes[SIZE];
    memset(bytes, name[0], SIZE);
    int made = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(made >= 0);
    EQUAL(write(made, bytes, SIZE), SIZE);
    EQUAL(close(made), 0);
}

int main(void) {
    made("a");
    made("b");
    int a = open("a", O_RDONLY), b = open("b", O_RDONLY);
    CHECK(a >= 0 && b >= 0);
    // A number that nothing else gets.
    fd = 77;
    EQUAL(dup2(a, fd), fd);
    pthread_t all[3] = {start(reads, NULL), start(reads, NULL), start(has_its_own, NULL)};
    char byte;
    REPEAT(50) {
        EQUAL(dup2(b, fd), fd);
        EQUAL(pread(fd, &byte, 1, 0), 1);
        EQUAL(byte, 'b');
        EQUAL(dup2(a, fd), fd);
        EQUAL(pread(fd, &byte, 1, 0), 1);
        EQUAL(byte, 'a');
        EQUAL(close(fd), 0);
        CHECK(pread(fd, &byte, 1, 0) == -1 && errno == EBADF);
        EQUAL(dup2(a, fd), fd);
    }
    over = true;
    for (int i = 0; i < 3; i++)
        join(all[i]);
    printf("one or the other\n");
    return 0;
}
