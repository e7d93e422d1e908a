// System calls with addresses that are nobody's: EFAULT, and what they would have done is not done.
#include "check.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

int main(void) {
    uint8_t *area = pages(2);
    EQUAL(mprotect(area, PAGE, PROT_NONE), 0);
    void *volatile nowhere = (void *)8;
    int ends_[2];
    char byte;
    EQUAL(pipe2(ends_, O_NONBLOCK), 0);
    REPEAT(10) {
        CHECK(write(ends_[1], area, 1) == -1 && errno == EFAULT);
        CHECK(write(ends_[1], nowhere, 1) == -1 && errno == EFAULT);
        CHECK(read(ends_[0], &byte, 1) == -1 && errno == EAGAIN);
        CHECK(syscall(SYS_openat, AT_FDCWD, nowhere, O_RDONLY) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_newfstatat, AT_FDCWD, "/", area, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_pipe2, area, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, area) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_nanosleep, area, NULL) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, area, NULL, 8) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_uname, nowhere) == -1 && errno == EFAULT);
        EQUAL(write(ends_[1], "q", 1), 1);
        CHECK(syscall(SYS_read, ends_[0], area, 1) == -1 && errno == EFAULT);
        EQUAL(read(ends_[0], &byte, 1), 1);
        EQUAL(byte, 'q');
    }
    printf("refused, and nothing done\n");
    return 0;
}
