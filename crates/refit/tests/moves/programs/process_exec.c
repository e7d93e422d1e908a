// A program that becomes another one and then itself again: what stays stays, what goes goes.
#include "check.h"
#include <sys/stat.h>

extern char **environ;

static int later(int turn, int fd, int closed, int process) {
    sigset_t mask;
    CHECK(getpid() == process && strcmp(getenv("KEPT"), "this") == 0);
    CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(closed, F_GETFD) == -1);
    EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    CHECK(sigismember(&mask, SIGUSR2) == 1);
    struct sigaction one, two;
    CHECK(sigaction(SIGUSR1, NULL, &one) == 0 && sigaction(SIGHUP, NULL, &two) == 0);
    CHECK(one.sa_handler == SIG_DFL && two.sa_handler == SIG_IGN && umask(027) == 027);
    return turn;
}

static void nothing(int number, siginfo_t *info, void *context) { (void)number, (void)info, (void)context; }

static void become(char *self, int turn, int fd, int process) {
    char words[4][16];
    // Will not be there.
    int closed = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    CHECK(closed >= 50);
    const int numbers[] = {turn, fd, closed, process};
    for (int i = 0; i < 4; i++)
        snprintf(words[i], sizeof(words[i]), "%d", numbers[i]);
    char *arguments[] = {self, words[0], words[1], words[2], words[3], NULL};
    execve("/proc/self/exe", arguments, environ);
    CHECK(!"it runs");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        int turn = later(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
        if (turn > 0)
            become(argv[0], turn - 1, atoi(argv[2]), getpid());
        return 31;
    }
    REPEAT(1) {
        pid_t child = fork();
        if (child == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGUSR2);
            EQUAL(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
            on_signal(SIGUSR1, nothing, 0);
            signal(SIGHUP, SIG_IGN);
            umask(027);
            setenv("KEPT", "this", 1);
            become(argv[0], 4, dup(1), getpid());
        }
        ends(child, 31);
    }
    printf("5 programs in turn\n");
    return 0;
}
