// How children end: by each of the signals that end them, and by themselves.
#include "check.h"

int main(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE, SIGVTALRM};
    REPEAT(2) {
        for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
            int status;
            // Before: it may be sent before the child runs, and whoever has started us may have had it ignored.
            void (*before)(int) = signal(signals[i], SIG_DFL);
            pid_t child = fork();
            if (child == 0) {
                for (;;)
                    pause();
            }
            signal(signals[i], before);
            EQUAL(kill(child, signals[i]), 0);
            EQUAL(waitpid(child, &status, 0), child);
            CHECK(WIFSIGNALED(status) && !WIFEXITED(status));
            EQUAL(WTERMSIG(status), signals[i]);
        }
        pid_t child = fork();
        if (child == 0)
            exit(300);
        ends(child, 300 & 0xff);
    }
    printf("8 signals and an exit code\n");
    return 0;
}
