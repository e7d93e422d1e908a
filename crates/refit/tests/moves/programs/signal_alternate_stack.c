// Handlers on an alternate stack, which each thread has for itself and which says whether it is used.
#include "check.h"

static _Thread_local char *stack;
static _Thread_local volatile int calls;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    char here;
    ucontext_t *interrupted = context;
    stack_t now;
    EQUAL(sigaltstack(NULL, &now), 0);
    CHECK(&here >= stack && &here < stack + 16 * PAGE);
    CHECK(now.ss_sp == stack && now.ss_flags == SS_ONSTACK && now.ss_size == 16 * PAGE);
    CHECK(interrupted->uc_stack.ss_sp == stack);
    CHECK(sigaltstack(&now, NULL) == -1 && errno == EPERM);
    calls++;
}

static void *run(void *argument) {
    stack = (char *)pages(16);
    stack_t mine = {.ss_sp = stack, .ss_size = 16 * PAGE};
    EQUAL(sigaltstack(&mine, NULL), 0);
    REPEAT(5) {
        int before = calls;
        raise(SIGUSR1);
        EQUAL(calls, before + 1);
        stack_t now;
        EQUAL(sigaltstack(NULL, &now), 0);
        CHECK(now.ss_sp == stack && now.ss_flags == 0);
    }
    mine.ss_flags = SS_DISABLE;
    EQUAL(sigaltstack(&mine, NULL), 0);
    return argument;
}

int main(void) {
    on_signal(SIGUSR1, handler, SA_ONSTACK);
    pthread_t other = start(run, NULL);
    run(NULL);
    join(other);
    printf("handlers on stacks of their own\n");
    return 0;
}
