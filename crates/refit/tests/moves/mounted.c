// A thread at another instance that answers what it is asked in a file, in another file, until it is asked for the largest number: the directory of both is
// the first argument.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "refit_move.h"

#define CHECK(holds) ((holds) ? (void)0 : failed(__LINE__, #holds))
#define WORDS 700

static void failed(int line, const char *what) {
    printf("line %d: not so: %s (errno %d, at %d)\n", line, what, errno, refit_instance());
    fflush(stdout);
    _exit(1);
}

int main(int count, char **words) {
    CHECK(count == 2 && chdir(words[1]) == 0);
    int question = open("question", O_RDONLY), answer = open("answer", O_RDWR), log = open("log", O_WRONLY | O_APPEND);
    CHECK(question >= 0 && answer >= 0 && log >= 0);
    CHECK(refit_move(1) == 0);
    uint64_t asked, next = 1, page[WORDS];
    for (;;) {
        CHECK(pread(question, &asked, sizeof asked, 0) == sizeof asked);
        if (asked == UINT64_MAX)
            break;
        if (asked != next) {
            sched_yield();
            continue;
        }
        for (int i = 0; i < WORDS; i++)
            page[i] = asked * (unsigned)(i + 1);
        // Over the border of a page; the first word says that the others are there.
        CHECK(pwrite(answer, page + 1, sizeof page - 8, 8) == sizeof page - 8);
        CHECK(write(log, &asked, sizeof asked) == sizeof asked);
        CHECK(pwrite(answer, page, 8, 0) == 8);
        next++;
    }
    CHECK(refit_instance() == 1);
    return 0;
}
