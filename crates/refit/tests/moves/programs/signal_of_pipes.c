// A write to a pipe that nobody reads: a signal to the writer, and EPIPE.
#include "check.h"

static _Thread_local volatile int got;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    got++;
}

static void *run(void *argument) {
    int wanted = 0;
    REPEAT(10) {
        int ends_[2];
        EQUAL(pipe2(ends_, O_CLOEXEC), 0);
        EQUAL(write(ends_[1], "ab", 2), 2);
        close(ends_[0]);
        CHECK(write(ends_[1], "ab", 2) == -1 && errno == EPIPE);
        EQUAL(got, ++wanted);
        close(ends_[1]);
    }
    return argument;
}

int main(void) {
    on_signal(SIGPIPE, handler, 0);
    pthread_t other = start(run, NULL);
    run(NULL);
    join(other);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        int ends_[2];
        if (pipe(ends_) == 0 && close(ends_[0]) == 0)
            (void)!write(ends_[1], "a", 1);
        _exit(1);
    }
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    printf("told by a signal and an error\n");
    return 0;
}
