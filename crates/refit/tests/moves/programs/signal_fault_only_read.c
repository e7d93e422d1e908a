// Writes to pages that may only be read, by stores and by system calls: a signal for one, EFAULT for the other.
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile sig_atomic_t code;
static void *volatile where;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code, where = info->si_addr;
    siglongjmp(back, 1);
}

static int store(volatile uint8_t *to) {
    code = 0;
    if (sigsetjmp(back, 1) == 0)
        *to = 1;
    return code;
}

int main(void) {
    uint8_t *area = pages(3);
    int fd = open("/dev/zero", O_RDONLY);
    CHECK(fd >= 0);
    on_signal(SIGSEGV, handler, 0);
    REPEAT(5) {
        memset(area, 7, 3 * PAGE);
        EQUAL(mprotect(area + PAGE, PAGE, PROT_READ), 0);
        EQUAL(store(area), 0);
        EQUAL(store(area + PAGE + 5), SEGV_ACCERR);
        CHECK(where == area + PAGE + 5 && area[PAGE + 5] == 7);
        CHECK(read(fd, area + PAGE, 1) == -1 && errno == EFAULT && area[PAGE] == 7);
        EQUAL(munmap(area + PAGE, PAGE), 0);
        EQUAL(store(area + PAGE), SEGV_MAPERR);
        CHECK(read(fd, area + PAGE, 1) == -1 && errno == EFAULT);
        CHECK(mmap(area + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
        EQUAL(area[PAGE + 5], 0);
    }
    printf("refused, and nothing written\n");
    return 0;
}
