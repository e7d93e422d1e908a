// What is done about signals is the process's: set by one thread, it holds for all; flags of one time only and of no mask hold.
#include "check.h"

static _Thread_local volatile int calls, within, deepest;

static void once(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    calls++;
}

static void itself(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    within++;
    deepest = within > deepest ? within : deepest;
    if (within < 5)
        raise(number);
    within--;
}

static void *set_there(void *argument) {
    on_signal(SIGUSR1, once, SA_RESETHAND);
    on_signal(SIGUSR2, itself, SA_NODEFER);
    return argument;
}

int main(void) {
    REPEAT(10) {
        join(start(set_there, NULL));
        calls = deepest = 0;
        raise(SIGUSR1);
        EQUAL(calls, 1);
        struct sigaction now;
        EQUAL(sigaction(SIGUSR1, NULL, &now), 0);
        CHECK(now.sa_handler == SIG_DFL);
        raise(SIGUSR2);
        EQUAL(deepest, 5);
        CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
        raise(SIGUSR1);
        EQUAL(calls, 1);
        EQUAL(sigaction(SIGUSR1, NULL, &now), 0);
        CHECK(now.sa_handler == SIG_IGN);
    }
    printf("actions hold for all threads\n");
    return 0;
}
