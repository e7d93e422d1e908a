// A child that is stopped and goes on, and each time its parent is told; what it counts is what it would without.
#include "check.h"

int main(void) {
    REPEAT(2) {
        atomic_int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        pid_t child = fork();
        if (child == 0) {
            uint64_t sum = 0;
            for (uint64_t i = 0; atomic_load(shared) == 0 || i < 1000000; i++)
                sum += i;
            _exit(sum == 0);
        }
        for (int i = 0; i < 5; i++) {
            int status;
            EQUAL(kill(child, SIGSTOP), 0);
            EQUAL(waitpid(child, &status, WUNTRACED), child);
            CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
            EQUAL(waitpid(child, &status, WNOHANG | WCONTINUED | WUNTRACED), 0);
            EQUAL(kill(child, SIGCONT), 0);
            EQUAL(waitpid(child, &status, WCONTINUED), child);
            CHECK(WIFCONTINUED(status));
        }
        atomic_store(shared, 1);
        ends(child, 0);
        munmap(shared, PAGE);
    }
    printf("stopped and continued 5 times at a time\n");
    return 0;
}
