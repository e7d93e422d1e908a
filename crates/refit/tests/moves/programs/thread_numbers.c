// The number of a thread is its own from its beginning to its end, and what others call it by.
#include "check.h"
#include <dirent.h>

static atomic_int there;
static pthread_barrier_t barrier;

static void *run(void *argument) {
    int own = gettid();
    CHECK(own != getpid() && syscall(SYS_gettid) == own);
    ((int *)argument)[0] = own;
    atomic_fetch_add(&there, 1);
    pthread_barrier_wait(&barrier);
    EQUAL(gettid(), own);
    EQUAL(syscall(SYS_tgkill, getpid(), own, 0), 0);
    return NULL;
}

int main(void) {
    EQUAL(pthread_barrier_init(&barrier, NULL, 4), 0);
    int process = getpid();
    REPEAT(5) {
        int numbers[3];
        pthread_t threads[3];
        atomic_store(&there, 0);
        for (int i = 0; i < 3; i++)
            threads[i] = start(run, &numbers[i]);
        await(&there, 3);
        CHECK(gettid() == process && getpid() == process);
        for (int i = 0; i < 3; i++) {
            char path[64];
            snprintf(path, sizeof(path), "/proc/self/task/%d/comm", numbers[i]);
            EQUAL(access(path, R_OK), 0);
            EQUAL(syscall(SYS_tgkill, process, numbers[i], 0), 0);
            CHECK(numbers[i] != numbers[(i + 1) % 3]);
        }
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 3; i++)
            join(threads[i]);
    }
    printf("numbers last\n");
    return 0;
}
