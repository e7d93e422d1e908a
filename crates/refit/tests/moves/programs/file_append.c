// Threads and a child that append to one file: each line is whole, and none is missing.
#include "check.h"

#define LINES 60

static int fd;

static void *run(void *argument) {
    char line[17];
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof(line), "%d wrote no. %03d\n", (int)(intptr_t)argument, i);
        EQUAL(write(fd, line, 16), 16);
    }
    return NULL;
}

int main(void) {
    fd = open("lines", O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
    CHECK(fd >= 0);
    REPEAT(1) {
        EQUAL(ftruncate(fd, 0), 0);
        pid_t child = fork();
        if (child == 0) {
            run((void *)3);
            _exit(0);
        }
        pthread_t other = start(run, (void *)1);
        run((void *)2);
        join(other);
        ends(child, 0);
        int next[4] = {0};
        char line[17] = {0};
        for (int i = 0; i < 3 * LINES; i++) {
            int who, number;
            EQUAL(pread(fd, line, 16, i * 16), 16);
            CHECK(sscanf(line, "%d wrote no. %d", &who, &number) == 2 && who >= 1 && who <= 3);
            EQUAL(number, next[who]++);
        }
        EQUAL(pread(fd, line, 16, 3 * LINES * 16), 0);
    }
    printf("%d lines of 3 writers\n", LINES);
    return 0;
}
