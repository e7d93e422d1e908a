// The first thread ends before the others: the process goes on, and its exit code is that of whoever ends it.
#include "check.h"

static pthread_t first;

static void *last(void *argument) {
    CHECK(join(first) == (void *)7);
    CHECK(kill(getpid(), 0) == 0);
    _exit((int)(intptr_t)argument);
}

int main(void) {
    int code = 10;
    REPEAT(5) {
        code = 10 + (code + 1) % 50;
        pid_t child = fork();
        if (child == 0) {
            first = pthread_self();
            start(last, (void *)(intptr_t)code);
            pthread_exit((void *)7);
        }
        ends(child, code);
    }
    printf("others went on\n");
    return 0;
}
