// Processes in groups: signalled and waited for together, and only they.
#include "check.h"

static pid_t idle(pid_t group) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    EQUAL(setpgid(child, group), 0);
    return child;
}

int main(void) {
    REPEAT(3) {
        pid_t leader = idle(0), member = idle(leader), other = idle(0);
        CHECK(getpgid(member) == leader && getpgid(leader) == leader && getpgid(other) == other);
        EQUAL(waitpid(-leader, NULL, WNOHANG), 0);
        EQUAL(kill(-leader, SIGTERM), 0);
        pid_t sum = 0;
        for (int i = 0; i < 2; i++) {
            int status;
            pid_t got = waitpid(-leader, &status, 0);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
            sum += got;
        }
        EQUAL(sum, leader + member);
        CHECK(waitpid(-leader, NULL, 0) == -1 && errno == ECHILD);
        EQUAL(waitpid(other, NULL, WNOHANG), 0);
        EQUAL(kill(other, SIGKILL), 0);
        EQUAL(waitpid(other, NULL, 0), other);
    }
    printf("2 in a group, 1 not\n");
    return 0;
}
