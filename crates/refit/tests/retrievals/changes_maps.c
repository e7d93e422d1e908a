// Three threads and their children look, in turn, whether they may do with pages what was last said, and say something else, until the end of the input.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PAGE = 4096, PAGES = 4, THREADS = 3 };
enum { WRITABLE, READABLE, NOTHING };
static volatile char *area;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int says = WRITABLE, value, wrong, over;
static __thread sigjmp_buf back;
static void faults(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}
static int can_write(volatile char *at) {
    if (sigsetjmp(back, 1)) return 0;
    *at = (char)value;
    return 1;
}
static int can_read(volatile char *at) {
    if (sigsetjmp(back, 1)) return 0;
    return *at == (char)value ? 1 : 2;
}
static int looks(void) {
    int found = 0;
    for (int page = 0; page < PAGES; page++) {
        volatile char *at = area + page * PAGE;
        found += can_write(at) != (says == WRITABLE);
        found += can_read(at) != (says != NOTHING);
    }
    return found;
}
static void changes(void) {
    int next = (says + 1) % 3;
    // A part of it at a time, so that what others have mapped is cut.
    for (int page = 0; page < PAGES; page++) {
        char *at = (char *)area + page * PAGE;
        if (next == READABLE && mprotect(at, PAGE, PROT_READ)) abort();
        if (next == NOTHING && munmap(at, PAGE)) abort();
    }
    if (next == WRITABLE) {
        int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap((char *)area, PAGES * PAGE, access, kind, -1, 0) == MAP_FAILED) abort();
        value++;
        for (int page = 0; page < PAGES; page++) area[page * PAGE] = (char)value;
    }
    says = next;
}
static void *works(void *which) {
    for (int round = 0, last = 0; !last; round++) {
        pthread_mutex_lock(&lock);
        last = over;
        wrong += looks();
        if (round % THREADS == (int)(long)which) changes();
        if (round % 30 == 0) {
            pid_t child = fork();
            if (!child) _exit(looks() ? 1 : 0);
            int status;
            if (child < 0 || waitpid(child, &status, 0) != child) abort();
            wrong += status != 0;
        }
        pthread_mutex_unlock(&lock);
        sched_yield();
    }
    return 0;
}
int main(void) {
    int access = PROT_READ | PROT_WRITE;
    area = mmap(0, PAGES * PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = { .sa_handler = faults };
    sigaction(SIGSEGV, &action, 0);
    pthread_t threads[THREADS];
    for (long which = 0; which < THREADS; which++) {
        if (pthread_create(&threads[which], 0, works, (void *)which)) return 1;
    }
    char line;
    while (read(0, &line, 1) > 0) { }
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_mutex_unlock(&lock);
    for (int which = 0; which < THREADS; which++) pthread_join(threads[which], 0);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
