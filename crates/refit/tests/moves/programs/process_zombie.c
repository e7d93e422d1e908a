// A child that has ended is there until it is waited for: it can be looked at, and signalled in vain.
#include "check.h"

int main(void) {
    REPEAT(5) {
        siginfo_t told = {0};
        pid_t child = fork();
        if (child == 0)
            _exit(51);
        EQUAL(waitid(P_PID, (id_t)child, &told, WEXITED | WNOWAIT), 0);
        CHECK(told.si_pid == child && told.si_code == CLD_EXITED && told.si_status == 51);
        EQUAL(kill(child, SIGKILL), 0);
        char path[64], line[256] = {0};
        snprintf(path, sizeof(path), "/proc/%d/stat", child);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && read(fd, line, sizeof(line) - 1) > 0);
        CHECK(strstr(line, ") Z ") != NULL);
        close(fd);
        EQUAL(waitid(P_PID, (id_t)child, &told, WEXITED), 0);
        CHECK(told.si_status == 51);
        CHECK(waitid(P_PID, (id_t)child, &told, WEXITED) == -1 && errno == ECHILD);
        CHECK(kill(child, 0) == -1 && errno == ESRCH);
    }
    printf("there until they are waited for\n");
    return 0;
}
