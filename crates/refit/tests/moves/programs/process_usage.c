// What a process and its children have used only grows, and is some of it after work was done.
#include "check.h"
#include <sys/resource.h>
#include <sys/times.h>

static int64_t microseconds(struct rusage *usage) {
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 + usage->ru_utime.tv_usec + usage->ru_stime.tv_usec;
}

int main(void) {
    struct rusage last = {0}, now, children = {0};
    CHECK(getrusage(RUSAGE_SELF, &last) == 0 && getrusage(RUSAGE_CHILDREN, &children) == 0);
    REPEAT(5) {
        for (uint64_t i = 0; i < 3000000; i++)
            used(i);
        EQUAL(getrusage(RUSAGE_SELF, &now), 0);
        CHECK(microseconds(&now) > microseconds(&last) && now.ru_maxrss >= last.ru_maxrss);
        last = now;
        struct tms told;
        CHECK(times(&told) != (clock_t)-1);
    }
    pid_t child = fork();
    if (child == 0) {
        for (uint64_t i = 0; i < 30000000; i++)
            used(i);
        _exit(0);
    }
    struct rusage its = {0};
    int status;
    EQUAL(wait4(child, &status, 0, &its), child);
    CHECK(status == 0 && microseconds(&its) > 0);
    EQUAL(getrusage(RUSAGE_CHILDREN, &now), 0);
    CHECK(microseconds(&now) - microseconds(&children) >= microseconds(&its));
    printf("use only grows\n");
    return 0;
}
