// A handler that is left by siglongjmp: the mask and the stack are those of the place that was kept.
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile int *volatile nowhere = NULL;

static void handler(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    siglongjmp(back, number);
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    on_signal(SIGSEGV, handler, 0);
    volatile uint64_t count = 0, left = 0;
    REPEAT(20) {
        volatile uint64_t kept = ++count * 3;
        int number = sigsetjmp(back, 1);
        if (number == 0) {
            if (count % 2)
                raise(SIGUSR1);
            *nowhere = 1;
        }
        EQUAL(number, count % 2 ? SIGUSR1 : SIGSEGV);
        EQUAL(kept, count * 3);
        sigset_t mask;
        EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
        CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGSEGV));
        left++;
    }
    CHECK(left == count);
    printf("left by jumps\n");
    return 0;
}
