// A mapped file that becomes shorter: what was behind its new end is a signal (SIGBUS), and zeros when it is long again.
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile sig_atomic_t code;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

int main(void) {
    int fd = open("shorter", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    on_signal(SIGBUS, handler, 0);
    REPEAT(5) {
        EQUAL(ftruncate(fd, 3 * PAGE), 0);
        volatile uint8_t *map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(map != MAP_FAILED);
        map[0] = 1, map[PAGE + 10] = 2, map[2 * PAGE] = 3;
        EQUAL(ftruncate(fd, PAGE + 11), 0);
        CHECK(map[0] == 1 && map[PAGE + 10] == 2 && map[PAGE + 11] == 0);
        code = 0;
        if (sigsetjmp(back, 1) == 0)
            (void)map[2 * PAGE];
        EQUAL(code, BUS_ADRERR);
        EQUAL(ftruncate(fd, 3 * PAGE), 0);
        CHECK(map[PAGE + 10] == 2 && map[2 * PAGE] == 0);
        EQUAL(munmap((void *)map, 3 * PAGE), 0);
        EQUAL(ftruncate(fd, 0), 0);
    }
    printf("a signal behind the end\n");
    return 0;
}
