// Signals that are read from a descriptor: each once, and it says when there are any.
#include "check.h"
#include <poll.h>
#include <sys/signalfd.h>

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    EQUAL(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    REPEAT(5) {
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        EQUAL(poll(&polled, 1, 0), 0);
        for (int i = 0; i < 3; i++)
            EQUAL(kill(getpid(), SIGUSR1), 0);
        for (int i = 0; i < 3; i++)
            EQUAL(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i * 7}), 0);
        EQUAL(poll(&polled, 1, -1), 1);
        struct signalfd_siginfo told[8];
        // One of the first kind, since they do not queue.
        EQUAL(read(fd, told, sizeof(told)), 4 * sizeof(*told));
        CHECK(told[0].ssi_signo == SIGUSR1 && told[0].ssi_pid == (uint32_t)getpid());
        for (int i = 0; i < 3; i++)
            CHECK(told[i + 1].ssi_signo == (uint32_t)SIGRTMIN && told[i + 1].ssi_int == i * 7);
        CHECK(read(fd, told, sizeof(told)) == -1 && errno == EAGAIN);
    }
    printf("4 signals read\n");
    return 0;
}
