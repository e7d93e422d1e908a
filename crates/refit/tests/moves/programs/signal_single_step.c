// A program that steps itself with the trap flag gets one signal for each instruction.
#include "check.h"

static volatile sig_atomic_t steps;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    steps++;
}

int main(void) {
    on_signal(SIGTRAP, handler, 0);
    REPEAT(3) {
        steps = 0;
        uint64_t value = 1;
        asm volatile("lea -128(%%rsp), %%rsp\n pushf\n orq $0x100, (%%rsp)\n popf\n"
                     ".rept 20\n lea 3(%0), %0\n.endr\n"
                     "pushf\n andq $-0x101, (%%rsp)\n popf\n lea 128(%%rsp), %%rsp"
                     : "+r"(value)
                     :
                     : "cc", "memory");
        EQUAL(value, 61);
        // One after each of the twenty and of the three that end it.
        EQUAL(steps, 23);
    }
    printf("23 steps at a time\n");
    return 0;
}
