// Threads that ask refit to go elsewhere, and where they are. The first argument says what is tried out; nothing is said if all is as it should be.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "refit_move.h"

#define CHECK(holds) ((holds) ? (void)0 : failed(__LINE__, #holds))

static void failed(int line, const char *what) {
    int number = errno;
    printf("line %d: not so: %s (errno %d, at %d)\n", line, what, number, refit_instance());
    fflush(stdout);
    _exit(1);
}

// As far as can be seen from within: registers, and memory of its own.
static void there(int instance) {
    register unsigned long kept __asm__("r12") = 0x1234567890abcdef;
    volatile int own = instance;
    __asm__ volatile("" : "+r"(kept));
    CHECK(refit_move(instance) == 0);
    __asm__ volatile("" : "+r"(kept));
    CHECK(kept == 0x1234567890abcdef && own == instance);
    CHECK(refit_instance() == instance);
}

static void to_and_fro(int times) {
    for (int i = 0; i < times; i++) {
        there(1);
        there(0);
    }
    there(0);
}

// Each goes its own way: where one is, no other one says.
static void *goes(void *number) {
    unsigned state = (unsigned)(long)number;
    for (int i = 0; i < 60; i++) {
        int at = rand_r(&state) % 2;
        there(at);
        unsigned sum = 0;
        for (int j = 0; j < 10000; j++)
            sum += (unsigned)j * state;
        CHECK(refit_instance() == at && sum == 49995000U * state);
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, goes, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(refit_instance() == 0);
}

static _Atomic int signals;

static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&signals, 1);
}

// Between the question and its answer, too.
static void interrupted(void) {
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 200 || atomic_load(&signals) < 20; i++) {
        // A signal brings it home for a moment.
        CHECK(refit_move(1) == 0);
        int at = refit_instance();
        CHECK(at == 1 || at == 0);
        there(0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void refused_with(int instance, int error) {
    int at = refit_instance();
    errno = 0;
    CHECK(refit_move(instance) == -1 && errno == error);
    CHECK(refit_instance() == at);
}

static void refused(void) {
    const int none[] = {7, -1, 65535, 65536, 65537, INT_MAX, INT_MIN};
    for (int at = 0; at < 2; at++) {
        for (unsigned i = 0; i < sizeof none / sizeof *none; i++)
            refused_with(none[i], ENOENT);
        CHECK(prctl(0x72656669, 0L, 1L, 0L, 0L) == -1 && errno == EINVAL);
        CHECK(prctl(0x72656669, 3L, 1L, 0L, 0L) == -1 && errno == EINVAL);
        there(1);
    }
    there(0);
}

// It has its parent's memory until it becomes another program.
static void borrower(void) {
    volatile int result = 0, error = 0;
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        result = refit_move(1);
        error = errno;
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child && result == -1 && error == EPERM);
    there(1);
}

static void children(void) {
    there(1);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            to_and_fro(5);
            _exit(7);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(refit_instance() == 1);
    }
}

// Each third of somebody's moves fails: it is where it was, or at home, where it is let go on if it cannot go back; or it was at home for a moment
// only, and is where it had asked to be.
static void faults(void) {
    int refusals = 0, last = 0;
    for (int i = 0; i < 400; i++) {
        int before = refit_instance(), to = (before + 1 + i % 2) % 3;
        if (refit_move(to) == 0) {
            CHECK(refit_instance() == to);
            last = to;
        } else {
            CHECK(errno == EBUSY && to != 0);
            int now = refit_instance();
            CHECK(now == before || now == 0 || now == last);
            refusals++;
        }
    }
    CHECK(refusals > 5);
}

static void alone(void) {
    CHECK(refit_move(0) == -1 && errno == EINVAL);
    CHECK(refit_move(1) == -1 && errno == EINVAL);
    CHECK(refit_instance() == -1 && errno == EINVAL);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "thousand"))
        to_and_fro(1000);
    else if (!strcmp(what, "some"))
        to_and_fro(20), threads(), refused(), children();
    else if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "interrupted"))
        interrupted();
    else if (!strcmp(what, "refused"))
        refused();
    else if (!strcmp(what, "borrower"))
        borrower();
    else if (!strcmp(what, "children"))
        children();
    else if (!strcmp(what, "faults"))
        faults();
    else if (!strcmp(what, "alone"))
        alone();
    else
        failed(__LINE__, "it knows what to try out");
    return 0;
}
