// Policy, niceness and processors of a thread are its own, and what it has set.
#include "check.h"
#include <sys/resource.h>

static void *run(void *argument) {
    int wanted = (int)(intptr_t)argument;
    cpu_set_t set, now;
    EQUAL(sched_getaffinity(0, sizeof(set), &set), 0);
    int processor = 0;
    while (!CPU_ISSET(processor, &set))
        processor++;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    EQUAL(setpriority(PRIO_PROCESS, (id_t)gettid(), wanted), 0);
    EQUAL(sched_setaffinity(0, sizeof(set), &set), 0);
    struct sched_param none = {0};
    EQUAL(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    for (int i = 0; i < 20; i++) {
        errno = 0;
        EQUAL(getpriority(PRIO_PROCESS, 0), wanted);
        EQUAL(sched_getscheduler(0), SCHED_BATCH);
        EQUAL(sched_getaffinity(0, sizeof(now), &now), 0);
        CHECK(CPU_EQUAL(&set, &now));
        sched_yield();
    }
    return NULL;
}

int main(void) {
    cpu_set_t before, after;
    int niceness = getpriority(PRIO_PROCESS, 0);
    EQUAL(sched_getaffinity(0, sizeof(before), &before), 0);
    REPEAT(3) {
        pthread_t threads[] = {start(run, (void *)17), start(run, (void *)18)};
        join(threads[0]);
        join(threads[1]);
        EQUAL(getpriority(PRIO_PROCESS, 0), niceness);
        EQUAL(sched_getscheduler(0), SCHED_OTHER);
        EQUAL(sched_getaffinity(0, sizeof(after), &after), 0);
        CHECK(CPU_EQUAL(&before, &after));
    }
    printf("each as it has set it\n");
    return 0;
}
