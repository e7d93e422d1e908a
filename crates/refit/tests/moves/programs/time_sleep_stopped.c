// A sleep that is stopped and continued goes on by itself until its time has come (restart_syscall), as do others with a limit.
#include "check.h"
#include <linux/futex.h>
#include <poll.h>

static int sleeps(int way) {
    struct timespec span = {0, 20000000};
    int word = 0;
    uint64_t before = now_ns();
    int got = way == 0   ? nanosleep(&span, NULL)
              : way == 1 ? poll(NULL, 0, 20)
                         : (int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0);
    return got == (way == 2 ? -1 : 0) && (way != 2 || errno == ETIMEDOUT) && now_ns() - before >= 20000000 ? 11 : 1;
}

int main(void) {
    REPEAT(1)
        for (int way = 0; way < 3; way++) {
            int status;
            pid_t child = fork();
            if (child == 0)
                _exit(sleeps(way));
            for (int i = 0; i < 3; i++) {
                usleep(2000);
                kill(child, SIGSTOP);
                EQUAL(waitpid(child, &status, WUNTRACED), child);
                if (!WIFSTOPPED(status))
                    break;
                kill(child, SIGCONT);
            }
            if (WIFSTOPPED(status))
                EQUAL(waitpid(child, &status, 0), child);
            CHECK(WIFEXITED(status));
            EQUAL(WEXITSTATUS(status), 11);
        }
    printf("3 sleeps that were stopped\n");
    return 0;
}
