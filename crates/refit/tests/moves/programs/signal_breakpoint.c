// Breakpoints of the program itself are signals to it, with the place behind them.
#include "check.h"
#include <ucontext.h>

static volatile sig_atomic_t hits;
static uintptr_t volatile behind;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number;
    EQUAL(info->si_code, SI_KERNEL);
    behind = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    hits++;
}

int main(void) {
    on_signal(SIGTRAP, handler, 0);
    int wanted = 0;
    REPEAT(10) {
        uintptr_t place;
        asm volatile("lea 1f(%%rip), %0\n int3\n1:" : "=r"(place) : : "memory");
        EQUAL(hits, ++wanted);
        CHECK(behind == place);
    }
    printf("breakpoints are the program's\n");
    return 0;
}
