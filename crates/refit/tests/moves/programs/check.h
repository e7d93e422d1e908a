// What the programs of the matrix share. Each repeats what it is about for some time, so that moves fall into all of its phases. What it
// prints depends neither on how often that was nor on when.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

// Ends the program unless what is said holds. `errno` is told as it is then, whether or not it has to do with it.
#define CHECK(holds) ((holds) ? (void)0 : check_failed(__FILE__, __LINE__, #holds))

// The same for two whole numbers, which are told.
#define EQUAL(got, wanted) check_equal(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))

static inline void check_failed(const char *file, int line, const char *what) {
    int number = errno;
    const char *name = strrchr(file, '/');
    printf("%s:%d: not so: %s (errno %d)\n", name ? name + 1 : file, line, what, number);
    fflush(stdout);
    _exit(1);
}

static inline void check_equal(const char *file, int line, const char *what, long long got, long long wanted) {
    if (got == wanted)
        return;
    printf("%s is %lld (%#llx), not %lld (%#llx)\n", what, got, got, wanted, wanted);
    check_failed(file, line, what);
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// What comes after it is done at least so many times, and until 150 ms have passed, or as many as MOVES_MS says.
#define REPEAT(least) for (struct repeat repeat_ = repeat_from(least); repeat_again(&repeat_);)

struct repeat {
    uint64_t until;
    unsigned least;
};

static inline struct repeat repeat_from(unsigned least) {
    const char *milliseconds = getenv("MOVES_MS");
    uint64_t span = milliseconds ? strtoull(milliseconds, NULL, 10) : 150;
    return (struct repeat){now_ns() + span * 1000000, least};
}

static inline bool repeat_again(struct repeat *repeat) {
    if (repeat->least == 0)
        return now_ns() < repeat->until;
    repeat->least--;
    return true;
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// Makes the compiler believe that somebody uses it.
static inline void used(uint64_t value) { asm volatile("" : : "r"(value)); }

static inline pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, run, argument), 0);
    return thread;
}

static inline void *join(pthread_t thread) {
    void *result = NULL;
    EQUAL(pthread_join(thread, &result), 0);
    return result;
}

static inline void on_signal(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    EQUAL(sigaction(number, &action, NULL), 0);
}

// Some zeroed pages.
static inline uint8_t *pages(size_t count) {
    void *there = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(there != MAP_FAILED);
    return there;
}

// Waits for a child that ends by itself.
static inline void ends(pid_t child, int code) {
    int status = -1;
    pid_t got;
    do
        got = waitpid(child, &status, 0);
    while (got == -1 && errno == EINTR);
    EQUAL(got, child);
    CHECK(WIFEXITED(status));
    EQUAL(WEXITSTATUS(status), code);
}

// Waits until a word is what it should become, whoever writes it.
static inline void await(atomic_int *word, int value) {
    while (atomic_load(word) != value)
        sched_yield();
}
