// A descriptor that tells by a signal that there is something to read (O_ASYNC).
#include "check.h"
#include <sys/socket.h>

static volatile sig_atomic_t told, which;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    which = info->si_fd;
    told++;
}

int main(void) {
    int pair[2];
    on_signal(SIGRTMIN, handler, 0);
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    EQUAL(fcntl(pair[0], F_SETOWN, getpid()), 0);
    EQUAL(fcntl(pair[0], F_SETSIG, SIGRTMIN), 0);
    EQUAL(fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK), 0);
    EQUAL(fcntl(pair[0], F_GETOWN), getpid());
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    REPEAT(5) {
        char byte;
        told = 0;
        EQUAL(write(pair[1], "x", 1), 1);
        while (told == 0)
            sigsuspend(&old);
        EQUAL(which, pair[0]);
        EQUAL(read(pair[0], &byte, 1), 1);
        CHECK(read(pair[0], &byte, 1) == -1 && errno == EAGAIN);
    }
    printf("told by a signal\n");
    return 0;
}
