// What a signal tells of itself: who has sent it, how, and the value that came with it.
#include "check.h"

static volatile siginfo_t told;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    told = *info;
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    on_signal(SIGRTMIN, handler, 0);
    REPEAT(5) {
        EQUAL(kill(getpid(), SIGUSR1), 0);
        CHECK(told.si_signo == SIGUSR1 && told.si_code == SI_USER);
        CHECK(told.si_pid == getpid() && told.si_uid == getuid());
        union sigval value = {.sival_ptr = (void *)&told};
        EQUAL(sigqueue(getpid(), SIGRTMIN, value), 0);
        CHECK(told.si_signo == SIGRTMIN && told.si_code == SI_QUEUE && told.si_value.sival_ptr == &told);
        EQUAL(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1), 0);
        CHECK(told.si_code == SI_TKILL && told.si_pid == getpid());
        pid_t child = fork();
        if (child == 0)
            _exit(kill(getppid(), SIGUSR1) == 0 ? 0 : 1);
        ends(child, 0);
        CHECK(told.si_code == SI_USER && told.si_pid == child);
    }
    printf("signals tell who has sent them\n");
    return 0;
}
