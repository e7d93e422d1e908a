// A child that asks for a signal when its parent ends gets it then.
#include "check.h"
#include <sys/prctl.h>

static atomic_int *shared;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    atomic_store(shared, 3);
    _exit(0);
}

int main(void) {
    EQUAL(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    REPEAT(3) {
        atomic_store(shared, 0);
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0) {
                on_signal(SIGUSR1, handler, 0);
                EQUAL(prctl(PR_SET_PDEATHSIG, SIGUSR1), 0);
                atomic_store(shared, 1);
                for (;;)
                    pause();
            }
            await(shared, 1);
            _exit(91);
        }
        ends(child, 91);
        await(shared, 3);
        int status;
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("told of the end\n");
    return 0;
}
