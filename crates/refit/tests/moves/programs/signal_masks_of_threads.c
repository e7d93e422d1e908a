// A signal to the process is handled by a thread that does not block it; one to a thread waits until that lets it in.
#include "check.h"

static atomic_int handled, by, go;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    atomic_store(&by, gettid());
    atomic_fetch_add(&handled, 1);
}

static void block(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    EQUAL(pthread_sigmask(how, &set, NULL), 0);
}

static void *open_one(void *argument) {
    block(SIG_UNBLOCK);
    atomic_store((atomic_int *)argument, gettid());
    await(&go, 1);
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    block(SIG_BLOCK);
    REPEAT(5) {
        atomic_int other = 0;
        atomic_store(&go, 0);
        atomic_store(&handled, 0);
        pthread_t thread = start(open_one, &other);
        while (atomic_load(&other) == 0)
            sched_yield();
        EQUAL(kill(getpid(), SIGUSR1), 0);
        await(&handled, 1);
        EQUAL(atomic_load(&by), atomic_load(&other));
        // To this thread, which blocks it.
        EQUAL(pthread_kill(pthread_self(), SIGUSR1), 0);
        sigset_t pending;
        EQUAL(sigpending(&pending), 0);
        EQUAL(sigismember(&pending, SIGUSR1), 1);
        EQUAL(atomic_load(&handled), 1);
        block(SIG_UNBLOCK);
        EQUAL(atomic_load(&handled), 2);
        EQUAL(atomic_load(&by), gettid());
        block(SIG_BLOCK);
        atomic_store(&go, 1);
        join(thread);
    }
    printf("handled by those who let it in\n");
    return 0;
}
