// The page below the stack of a thread: who runs into it gets a signal there, on the alternate stack.
#include "check.h"
#include <setjmp.h>

static _Thread_local sigjmp_buf back;
static _Thread_local uintptr_t low;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    CHECK((uintptr_t)info->si_addr < low + 64 * PAGE);
    siglongjmp(back, 1);
}

__attribute__((noinline)) static unsigned dive(unsigned depth) {
    volatile uint8_t frame[512];
    frame[depth % 512] = (uint8_t)depth;
    return depth > 1000000 ? frame[0] : dive(depth + 1) + frame[depth % 512];
}

static void *run(void *argument) {
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    EQUAL(pthread_getattr_np(pthread_self(), &attributes), 0);
    EQUAL(pthread_attr_getstack(&attributes, &stack, &size), 0);
    pthread_attr_destroy(&attributes);
    low = (uintptr_t)stack;
    stack_t other = {.ss_sp = pages(16), .ss_size = 16 * PAGE};
    EQUAL(sigaltstack(&other, NULL), 0);
    if (sigsetjmp(back, 1) == 0)
        CHECK(dive(0) == 1);
    return argument;
}

int main(void) {
    on_signal(SIGSEGV, handler, SA_ONSTACK);
    pthread_attr_t attributes;
    EQUAL(pthread_attr_init(&attributes), 0);
    EQUAL(pthread_attr_setstacksize(&attributes, 32 * PAGE), 0);
    REPEAT(5) {
        pthread_t thread;
        EQUAL(pthread_create(&thread, &attributes, run, (void *)7), 0);
        CHECK(join(thread) == (void *)7);
    }
    printf("stopped at the guard\n");
    return 0;
}
