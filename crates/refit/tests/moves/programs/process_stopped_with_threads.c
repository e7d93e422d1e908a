// A child of several threads that is stopped: none of them does anything until it is let go on, and then all do.
#include "check.h"

#define THREADS 3

static atomic_ulong *counts;

static void *count(void *argument) {
    atomic_ulong *own = argument;
    while (!atomic_load(&counts[THREADS]))
        atomic_fetch_add(own, 1);
    return NULL;
}

static void let_all_count(void) {
    for (int i = 0; i < THREADS; i++)
        for (unsigned long then = atomic_load(&counts[i]); atomic_load(&counts[i]) == then;)
            sched_yield();
}

int main(void) {
    counts = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(counts != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(count, &counts[i]);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        _exit(7);
    }
    REPEAT(5) {
        let_all_count();
        int status;
        EQUAL(kill(child, SIGSTOP), 0);
        EQUAL(waitpid(child, &status, WUNTRACED), child);
        CHECK(WIFSTOPPED(status));
        unsigned long then[THREADS];
        for (int i = 0; i < THREADS; i++)
            then[i] = atomic_load(&counts[i]);
        usleep(2000);
        for (int i = 0; i < THREADS; i++)
            EQUAL(atomic_load(&counts[i]), then[i]);
        EQUAL(kill(child, SIGCONT), 0);
    }
    let_all_count();
    atomic_store(&counts[THREADS], 1);
    ends(child, 7);
    printf("%d threads stood\n", THREADS);
    return 0;
}
