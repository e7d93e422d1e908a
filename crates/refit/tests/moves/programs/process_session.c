// A session of its own: who begins it leads it, its group, and has no terminal.
#include "check.h"

int main(void) {
    pid_t session = getsid(0), group = getpgid(0);
    REPEAT(3) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(getsid(0) == session && getpgid(0) == group);
            EQUAL(setsid(), getpid());
            CHECK(getsid(0) == getpid() && getpgid(0) == getpid());
            CHECK(setsid() == -1 && errno == EPERM);
            CHECK(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(getsid(0) == getppid() ? 61 : 1);
            ends(grandchild, 61);
            _exit(62);
        }
        ends(child, 62);
        CHECK(getsid(0) == session && getpgid(0) == group);
    }
    printf("sessions of their own\n");
    return 0;
}
