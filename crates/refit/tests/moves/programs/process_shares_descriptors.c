// A process that shares descriptors and memory with another, but is none of its threads (clone with few flags).
#include "check.h"

static int fd;
static volatile int word;

static int run(void *argument) {
    fd = dup(1);
    word = getpid() == (int)(intptr_t)argument ? 2 : 1;
    return 17;
}

int main(void) {
    uint8_t *stack = pages(16);
    REPEAT(5) {
        word = fd = 0;
        pid_t child = clone(run, stack + 16 * PAGE, CLONE_VM | CLONE_FILES | SIGCHLD, (void *)(intptr_t)getpid());
        CHECK(child > 0);
        ends(child, 17);
        EQUAL(word, 1);
        CHECK(fd > 2 && close(fd) == 0);
        // Neither.
        child = clone(run, stack + 16 * PAGE, SIGCHLD, (void *)(intptr_t)getpid());
        CHECK(child > 0);
        ends(child, 17);
        CHECK(word == 1 && fcntl(fd, F_GETFD) == -1);
    }
    printf("shared and not\n");
    return 0;
}
