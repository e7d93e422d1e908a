// POSIX timers: to the process and to one thread of it, with their values, whoever of them computes where.
#include "check.h"

static atomic_int process_ticks, thread_ticks;
static pid_t chosen;

static void tick(int number, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_TIMER);
    EQUAL(info->si_value.sival_int, number == SIGRTMIN ? 11 : 22);
    if (number == SIGRTMIN + 1)
        EQUAL(gettid(), chosen);
    atomic_fetch_add(number == SIGRTMIN ? &process_ticks : &thread_ticks, 1);
}

int main(void) {
    chosen = gettid();
    on_signal(SIGRTMIN, tick, SA_RESTART);
    on_signal(SIGRTMIN + 1, tick, SA_RESTART);
    struct itimerspec every = {{0, 1000000}, {0, 1000000}}, never = {{0, 0}, {0, 0}};
    struct sigevent process = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 11};
    struct sigevent thread = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 22};
    thread._sigev_un._tid = chosen;
    REPEAT(2) {
        timer_t timers[2];
        EQUAL(timer_create(CLOCK_MONOTONIC, &process, &timers[0]), 0);
        EQUAL(timer_create(CLOCK_MONOTONIC, &thread, &timers[1]), 0);
        atomic_store(&process_ticks, 0);
        atomic_store(&thread_ticks, 0);
        for (int i = 0; i < 2; i++)
            EQUAL(timer_settime(timers[i], 0, &every, NULL), 0);
        while (atomic_load(&process_ticks) < 8 || atomic_load(&thread_ticks) < 8)
            ;
        EQUAL(timer_settime(timers[0], 0, &never, NULL), 0);
        for (int i = 0; i < 2; i++)
            EQUAL(timer_delete(timers[i]), 0);
    }
    printf("8 ticks of each timer at a time\n");
    return 0;
}
