// Threads that send signals to each other while all compute: none is lost, each is handled by whom it was sent to.
#include "check.h"

#define THREADS 4
#define ROUNDS 50

static pthread_t all[THREADS];
static atomic_int handled[THREADS];
static _Thread_local int self;
static pthread_barrier_t barrier;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    atomic_fetch_add(&handled[self], 1);
}

static void *run(void *argument) {
    self = (int)(intptr_t)argument;
    int next = (self + 1) % THREADS;
    all[self] = pthread_self();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        EQUAL(pthread_kill(all[next], SIGUSR1), 0);
        // The next one is not sent before this one has come, since they do not queue.
        await(&handled[next], i + 1);
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, SA_RESTART);
    EQUAL(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    REPEAT(2) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            atomic_store(&handled[i], 0);
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(run, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        for (int i = 0; i < THREADS; i++)
            EQUAL(atomic_load(&handled[i]), ROUNDS);
    }
    printf("%d signals around %d threads at a time\n", ROUNDS, THREADS);
    return 0;
}
