// A process that is killed while it holds a robust mutex in shared memory: its parent is told.
#include "check.h"

struct shared {
    pthread_mutex_t mutex;
    atomic_int held;
};

int main(void) {
    struct shared *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_t attributes;
    EQUAL(pthread_mutexattr_init(&attributes), 0);
    EQUAL(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), 0);
    EQUAL(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    EQUAL(pthread_mutex_init(&shared->mutex, &attributes), 0);
    REPEAT(3) {
        atomic_store(&shared->held, 0);
        pid_t child = fork();
        if (child == 0) {
            EQUAL(pthread_mutex_lock(&shared->mutex), 0);
            atomic_store(&shared->held, 1);
            for (;;)
                pause();
        }
        await(&shared->held, 1);
        EQUAL(pthread_mutex_trylock(&shared->mutex), EBUSY);
        EQUAL(kill(child, SIGKILL), 0);
        EQUAL(pthread_mutex_lock(&shared->mutex), EOWNERDEAD);
        EQUAL(pthread_mutex_consistent(&shared->mutex), 0);
        EQUAL(pthread_mutex_unlock(&shared->mutex), 0);
        int status;
        EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    printf("told of the dead\n");
    return 0;
}
