// A child whose parent has ended gets another one, which waits for it.
#include "check.h"
#include <sys/prctl.h>

int main(void) {
    EQUAL(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t self = getpid();
    REPEAT(3) {
        pid_t child = fork();
        if (child == 0) {
            pid_t parent = getpid();
            if (fork() > 0)
                _exit(71);
            while (getppid() == parent)
                sched_yield();
            _exit(getppid() == self ? 72 : 1);
        }
        ends(child, 71);
        int status;
        CHECK(wait(&status) > 0 && WIFEXITED(status));
        EQUAL(WEXITSTATUS(status), 72);
        CHECK(wait(&status) == -1 && errno == ECHILD);
    }
    printf("orphans were taken in\n");
    return 0;
}
