// Tasks of the program's own that take turns on stacks of their own (swapcontext), with floating point and masks.
#include "check.h"
#include <ucontext.h>

#define TASKS 4

static ucontext_t tasks[TASKS], whole;
static double sums[TASKS];
static int ended;

static void run(int number) {
    double sum = 0;
    sigset_t mask;
    for (int i = 0; i < 50; i++) {
        sum += number + 0.5;
        EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
        EQUAL(sigismember(&mask, SIGRTMIN + number), 1);
        EQUAL(sigismember(&mask, SIGRTMIN + (number + 1) % TASKS), 0);
        EQUAL(swapcontext(&tasks[number], &tasks[(number + 1) % TASKS]), 0);
    }
    sums[number] = sum;
    // In its turn, so all of them do.
    if (++ended < TASKS)
        setcontext(&tasks[(number + 1) % TASKS]);
}

int main(void) {
    uint8_t *stacks = pages(TASKS * 16);
    REPEAT(3) {
        ended = 0;
        for (int i = 0; i < TASKS; i++) {
            EQUAL(getcontext(&tasks[i]), 0);
            tasks[i].uc_stack = (stack_t){.ss_sp = stacks + i * 16 * PAGE, .ss_size = 16 * PAGE};
            tasks[i].uc_link = &whole;
            sigaddset(&tasks[i].uc_sigmask, SIGRTMIN + i);
            makecontext(&tasks[i], (void (*)(void))run, 1, i);
        }
        EQUAL(swapcontext(&whole, &tasks[0]), 0);
        EQUAL(ended, TASKS);
        for (int i = 0; i < TASKS; i++)
            CHECK(sums[i] == 50 * (i + 0.5));
        sigset_t mask;
        EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
        EQUAL(sigismember(&mask, SIGRTMIN), 0);
    }
    printf("%d tasks in turn\n", TASKS);
    return 0;
}
