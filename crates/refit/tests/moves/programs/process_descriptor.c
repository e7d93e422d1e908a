// A descriptor of a process: it can be polled until the end, signalled and waited for by it.
#include "check.h"
#include <poll.h>

int main(void) {
    REPEAT(3) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        int fd = (int)syscall(SYS_pidfd_open, child, 0);
        CHECK(fd >= 0);
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        EQUAL(poll(&polled, 1, 0), 0);
        EQUAL(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0), 0);
        EQUAL(poll(&polled, 1, -1), 1);
        siginfo_t told = {0};
        EQUAL(waitid(3 /* P_PIDFD */, (id_t)fd, &told, WEXITED), 0);
        CHECK(told.si_pid == child && told.si_code == CLD_KILLED && told.si_status == SIGTERM);
        CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == -1 && errno == ESRCH);
        close(fd);
    }
    printf("polled, signalled and waited for\n");
    return 0;
}
