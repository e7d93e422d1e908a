// Numbers of descriptors: the lowest that is free, put where they are asked for, closed when a program is run.
#include "check.h"

int main(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(null >= 3 && fcntl(null, F_GETFD) == FD_CLOEXEC);
    REPEAT(10) {
        int first = dup(null), second = dup(null), third = dup(null);
        CHECK(second > first && third > second && fcntl(first, F_GETFD) == 0);
        EQUAL(close(second), 0);
        EQUAL(dup(null), second);
        EQUAL(dup2(null, 60), 60);
        EQUAL(dup3(null, 61, O_CLOEXEC), 61);
        CHECK(fcntl(60, F_GETFD) == 0 && fcntl(61, F_GETFD) == FD_CLOEXEC);
        EQUAL(fcntl(null, F_DUPFD, 60), 62);
        CHECK((fcntl(62, F_GETFL) & O_ACCMODE) == O_RDWR);
        EQUAL(fcntl(60, F_SETFL, O_NONBLOCK), 0);
        CHECK(fcntl(62, F_GETFL) & O_NONBLOCK);
        EQUAL(fcntl(60, F_SETFL, 0), 0);
        EQUAL(syscall(SYS_close_range, 60, 70, 0), 0);
        CHECK(fcntl(60, F_GETFD) == -1 && errno == EBADF && fcntl(62, F_GETFD) == -1);
        CHECK(close(first) == 0 && close(second) == 0 && close(third) == 0);
        CHECK(close(first) == -1 && errno == EBADF);
    }
    printf("numbers as they should be\n");
    return 0;
}
