// SIGCHLD tells which child has ended and how.
#include "check.h"

static volatile sig_atomic_t count, sum, wrong;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    int status;
    pid_t child;
    while ((child = waitpid(-1, &status, WNOHANG)) > 0) {
        count++;
        sum += WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    wrong |= info->si_code != CLD_EXITED && info->si_code != CLD_KILLED;
}

int main(void) {
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    on_signal(SIGCHLD, handler, SA_RESTART | SA_NOCLDSTOP);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    REPEAT(3) {
        count = sum = 0;
        for (int i = 1; i <= 4; i++) {
            pid_t child = fork();
            if (child == 0 && i == 4)
                raise(SIGKILL);
            if (child == 0)
                _exit(i);
        }
        while (count < 4)
            CHECK(sigsuspend(&old) == -1 && errno == EINTR);
        EQUAL(sum, 1 + 2 + 3 + 1000 + SIGKILL);
        EQUAL(wrong, 0);
    }
    printf("4 children at a time\n");
    return 0;
}
