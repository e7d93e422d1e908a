// A tree of processes, each of which adds up what its children say through their exit codes.
#include "check.h"

static int grow(int depth) {
    pid_t children[2];
    int sum = 1;
    if (depth == 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0)
            _exit(grow(depth - 1));
    }
    for (int i = 0; i < 2; i++) {
        int status;
        EQUAL(waitpid(children[i], &status, 0), children[i]);
        CHECK(WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    return sum;
}

int main(void) {
    REPEAT(2)
        EQUAL(grow(3), 15);
    printf("15 processes at a time\n");
    return 0;
}
