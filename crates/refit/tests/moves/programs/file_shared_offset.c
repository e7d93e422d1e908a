// Threads, a copy of a descriptor and a child read one open file: each piece of it is had once, and in whole, whoever has it.
#include "check.h"
#include <sys/stat.h>

#define PIECES 96
#define SIZE 1000

// Seen by the child, too.
static atomic_int *had;
static int fd;

static void *reads(void *argument) {
    uint32_t *piece = (void *)pages(1);
    int from = (int)(intptr_t)argument;
    for (;;) {
        memset(piece, 'x', SIZE);
        ssize_t got = read(from, piece, SIZE);
        if (got == 0)
            break;
        EQUAL(got, SIZE);
        CHECK(piece[0] < PIECES);
        for (int i = 0; i < SIZE / 4; i++)
            EQUAL(piece[i], piece[0] + (uint32_t)i * 1000);
        atomic_fetch_add(&had[piece[0]], 1);
    }
    munmap(piece, PAGE);
    return NULL;
}

int main(void) {
    had = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fd = open("pieces", O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK(had != MAP_FAILED && fd >= 0);
    int copy = dup(fd);
    struct stat told;
    REPEAT(2) {
        EQUAL(lseek(fd, 0, SEEK_SET), 0);
        for (uint32_t piece = 0; piece < PIECES; piece++) {
            uint32_t words[SIZE / 4];
            for (int i = 0; i < SIZE / 4; i++)
                words[i] = piece + (uint32_t)i * 1000;
            EQUAL(write(fd, words, SIZE), SIZE);
            atomic_store(&had[piece], 0);
        }
        EQUAL(fstat(fd, &told), 0);
        EQUAL(told.st_size, PIECES * SIZE);
        CHECK(S_ISREG(told.st_mode) && told.st_nlink == 1 && (told.st_mode & 0777) == 0600);
        EQUAL(lseek(copy, 0, SEEK_SET), 0);
        pid_t child = fork();
        if (child == 0) {
            reads((void *)(intptr_t)fd);
            _exit(0);
        }
        pthread_t one = start(reads, (void *)(intptr_t)fd), other = start(reads, (void *)(intptr_t)copy);
        reads((void *)(intptr_t)fd);
        join(one);
        join(other);
        ends(child, 0);
        for (int piece = 0; piece < PIECES; piece++)
            EQUAL(had[piece], 1);
        EQUAL(lseek(fd, 0, SEEK_CUR), PIECES * SIZE);
    }
    printf("each of %d pieces once\n", PIECES);
    return 0;
}
