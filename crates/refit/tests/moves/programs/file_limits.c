// A limit of what files may become holds wherever they are written: up to it, then EFBIG and SIGXFSZ, which ends a child that does not catch it.
#include "check.h"
#include <sys/resource.h>

static volatile sig_atomic_t caught;

static void on_limit(int number, siginfo_t *information, void *context) {
    (void)information, (void)context;
    caught += number == SIGXFSZ;
}

static void limit(rlim_t bytes) {
    struct rlimit now;
    EQUAL(getrlimit(RLIMIT_FSIZE, &now), 0);
    now.rlim_cur = bytes;
    EQUAL(setrlimit(RLIMIT_FSIZE, &now), 0);
}

int main(void) {
    char *bytes = (void *)pages(2);
    on_signal(SIGXFSZ, on_limit, 0);
    REPEAT(5) {
        caught = 0;
        memset(bytes, 'x', 2 * PAGE);
        int fd = open("limited", O_CREAT | O_TRUNC | O_RDWR, 0600);
        CHECK(fd >= 0);
        for (int i = 0; i < 10; i++)
            EQUAL(pwrite(fd, bytes, 2000, 0), 2000);
        limit(5000);
        EQUAL(pwrite(fd, bytes, 2000, 4000), 1000);
        EQUAL(caught, 0);
        CHECK(pwrite(fd, bytes, 1, 5000) == -1 && errno == EFBIG);
        EQUAL(caught, 1);
        EQUAL(lseek(fd, 0, SEEK_END), 5000);
        CHECK(write(fd, bytes, 8) == -1 && errno == EFBIG);
        EQUAL(caught, 2);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGXFSZ, SIG_DFL);
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            (void)!write(fd, bytes, 8);
            _exit(0);
        }
        int status = 0;
        EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
        EQUAL(lseek(fd, 0, SEEK_CUR), 5000);
        limit(RLIM_INFINITY);
        EQUAL(write(fd, bytes, 8), 8);
        EQUAL(lseek(fd, 0, SEEK_CUR), 5008);
        close(fd);
    }
    printf("5000 bytes, then signals\n");
    return 0;
}
