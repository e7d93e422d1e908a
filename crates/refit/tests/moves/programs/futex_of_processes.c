// Futexes in memory that processes share at different addresses: they are one.
#include "check.h"
#include <linux/futex.h>

static void turns(atomic_int *turn, int own) {
    for (int i = 0; i < 100; i++) {
        while (atomic_load(turn) != own) {
            long got = syscall(SYS_futex, turn, FUTEX_WAIT, !own, NULL, NULL, 0);
            CHECK(got == 0 || errno == EAGAIN || errno == EINTR);
        }
        atomic_store(turn, !own);
        CHECK(syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0) <= 1);
    }
}

int main(void) {
    int fd = memfd_create("shared", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    atomic_int *here = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(here != MAP_FAILED);
    REPEAT(3) {
        atomic_store(here, 0);
        pid_t child = fork();
        if (child == 0) {
            atomic_int *there = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            CHECK(there != MAP_FAILED && there != here);
            turns(there, 1);
            _exit(0);
        }
        turns(here, 0);
        ends(child, 0);
    }
    printf("200 turns of 2 processes at a time\n");
    return 0;
}
