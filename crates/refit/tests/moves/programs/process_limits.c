// Limits of the process hold wherever its calls are made, and its children have them.
#include "check.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit before, now, small = {24, 0};
    EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    small.rlim_max = before.rlim_max;
    REPEAT(3) {
        int opened[32], count = 0;
        EQUAL(setrlimit(RLIMIT_NOFILE, &small), 0);
        while ((opened[count] = dup(1)) >= 0)
            CHECK(opened[count] < 24 && ++count < 32);
        EQUAL(errno, EMFILE);
        pid_t child = fork();
        if (child == 0)
            _exit(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 24 && dup(1) == -1 ? 0 : 1);
        ends(child, 0);
        while (count > 0)
            close(opened[--count]);
        struct rlimit old;
        EQUAL(prlimit(getpid(), RLIMIT_NOFILE, &before, &old), 0);
        EQUAL(old.rlim_cur, 24);
        struct rlimit none = {0, 0};
        EQUAL(getrlimit(RLIMIT_FSIZE, &now), 0);
        none.rlim_max = now.rlim_max;
        none.rlim_cur = 10;
        EQUAL(setrlimit(RLIMIT_FSIZE, &none), 0);
        signal(SIGXFSZ, SIG_IGN);
        int fd = open("limited", O_CREAT | O_TRUNC | O_WRONLY, 0600);
        CHECK(fd >= 0);
        EQUAL(write(fd, "0123456789abcdef", 16), 10);
        CHECK(write(fd, "x", 1) == -1 && errno == EFBIG);
        EQUAL(setrlimit(RLIMIT_FSIZE, &now), 0);
        close(fd);
    }
    printf("24 descriptors, 10 bytes\n");
    return 0;
}
