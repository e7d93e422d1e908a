// Who limits its own calls is limited in those, and in no others: by filters that kill for all else, of one thread or of all; in strict mode.
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { THREADS = 3, TURNS = 20 };

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IF(number, answer) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)

static struct sock_filter rules[] = {
    NUMBER,
    IF(SYS_write, SECCOMP_RET_ALLOW),
    IF(SYS_mmap, SECCOMP_RET_ALLOW),
    IF(SYS_munmap, SECCOMP_RET_ALLOW),
    IF(SYS_exit, SECCOMP_RET_ALLOW),
    IF(SYS_exit_group, SECCOMP_RET_ALLOW),
    IF(SYS_getppid, SECCOMP_RET_ERRNO | 77),
    IF(SYS_getuid, SECCOMP_RET_TRAP | 5),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

// Works for some milliseconds, so that it would be moved.
static void work(void) {
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < 4000000; i++)
        sum += i;
}

static int end_of(void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // It is elsewhere then.
        for (int i = 0; i < TURNS; i++)
            work();
        body();
        _exit(99);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int well = 7;
static void end(int code) { syscall(SYS_exit_group, code); }

static void turns(void) {
    for (int i = 0; i < TURNS; i++) {
        work();
        errno = 0;
        if (syscall(SYS_getppid) != -1 || errno != 77)
            end(1);
        char *page = (char *)syscall(SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            end(2);
        page[5] = 1;
        if (syscall(SYS_munmap, page, PAGE) || syscall(SYS_write, 1, "", 0))
            end(3);
    }
}

static void limit(int flags) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter))
        end(4);
}

static void limited(void) { limit(0), turns(), end(well); }
static void killed(void) { limit(0), turns(), syscall(SYS_getgid), end(5); }
static void by_prctl(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        end(4);
    turns(), end(7);
}
static void wrong(void) {
    errno = 0;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) != -1 || errno != EFAULT)
        end(1);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, 0) != -1 || errno != EINVAL)
        end(2);
    if (syscall(SYS_seccomp, 99, 0, 0) != -1 || errno != EINVAL)
        end(3);
    if (prctl(PR_SET_SECCOMP, 9, 0, 0, 0) != -1 || errno != EINVAL)
        end(4);
    // A filter, and then no strict mode.
    limit(0);
    work();
    end(7);
}

static atomic_int others;
static void *other(void *unused) {
    others++;
    // Until the filter is its own, too, which the first thread tells.
    while (others <= THREADS)
        ;
    turns();
    others++;
    while (others)
        work();
    return unused;
}
static void threads(void) {
    pthread_t thread;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread, 0, other, 0) == 0);
    while (others < THREADS)
        ;
    work();
    limit(SECCOMP_FILTER_FLAG_TSYNC);
    others++;
    turns();
    while (others < 2 * THREADS + 1)
        ;
    end(7);
}

// Who makes children for which the filter forbids whatever was not foreseen. Its memory is copied for a child all the same, where refit is permitted
// that: as root.
static void forks(void) {
    static struct sock_filter few[] = {
        NUMBER,
        IF(SYS_write, SECCOMP_RET_ALLOW),
        IF(SYS_fork, SECCOMP_RET_ALLOW),
        IF(SYS_wait4, SECCOMP_RET_ALLOW),
        IF(SYS_exit_group, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    filter = (struct sock_fprog){sizeof few / sizeof *few, few};
    if (geteuid())
        end(7);
    limit(0);
    static volatile int own;
    for (int i = 0; i < 5; i++) {
        own = i;
        long child = syscall(SYS_fork);
        if (child == 0) {
            own += 10;
            end(own);
        }
        int status = 0;
        work();
        if (syscall(SYS_wait4, child, &status, 0, 0) != child || status != (i + 10) << 8 || own != i)
            end(1);
    }
    end(7);
}

static void strict(void) {
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0))
        end(1);
    for (int i = 0; i < TURNS; i++)
        work(), syscall(SYS_write, 1, "", 0);
    syscall(SYS_exit, 7);
}
static void strict_by_prctl(void) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        end(1);
    for (int i = 0; i < TURNS; i++)
        work(), syscall(SYS_write, 1, "", 0);
    syscall(SYS_getppid);
    syscall(SYS_exit, 5);
}

int main(void) {
    REPEAT(1) {
        EQUAL(end_of(limited), 7 << 8);
        EQUAL(end_of(killed) & 0x7f, SIGSYS);
        EQUAL(end_of(by_prctl), 7 << 8);
        EQUAL(end_of(wrong), 7 << 8);
        EQUAL(end_of(threads), 7 << 8);
        EQUAL(end_of(forks), 7 << 8);
        EQUAL(end_of(strict), 7 << 8);
        EQUAL(end_of(strict_by_prctl), SIGKILL);
    }
    printf("limited by themselves\n");
    fflush(stdout);
    // The process itself, which has moved.
    work();
    well = 0;
    limited();
}
