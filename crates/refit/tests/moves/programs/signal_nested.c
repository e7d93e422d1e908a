// Handlers within handlers, each with the mask that it asked for, and all of them left in their order.
#include "check.h"

static volatile sig_atomic_t depth, deepest, trail;

static bool blocked(int number) {
    sigset_t mask;
    EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    return sigismember(&mask, number) == 1;
}

static void handler(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    depth++;
    deepest = depth > deepest ? depth : deepest;
    trail = trail * 10 + depth;
    CHECK(blocked(number) && !blocked(SIGTERM));
    if (number < SIGRTMIN + 4)
        raise(number + 1);
    CHECK(blocked(number) && !blocked(number + 1));
    // Blocked by this handler: comes when it has ended.
    raise(number == SIGRTMIN + 4 ? SIGRTMIN + 5 : number + 1 < SIGRTMIN + 4 ? SIGUSR2 : SIGRTMIN + 5);
    trail = trail * 10 + depth;
    depth--;
}

static void last(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    CHECK(depth >= 1);
}

int main(void) {
    for (int i = 0; i < 5; i++)
        on_signal(SIGRTMIN + i, handler, 0);
    on_signal(SIGRTMIN + 5, last, 0);
    on_signal(SIGUSR2, last, 0);
    REPEAT(5) {
        depth = deepest = trail = 0;
        raise(SIGRTMIN + 1);
        EQUAL(trail, 12344321);
        CHECK(depth == 0 && deepest == 4 && !blocked(SIGRTMIN + 1));
    }
    printf("4 deep and back\n");
    return 0;
}
