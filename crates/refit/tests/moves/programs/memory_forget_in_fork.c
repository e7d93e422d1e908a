// Mappings that a child gets zeroed, or not at all.
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    siglongjmp(back, 1);
}

int main(void) {
    uint8_t *wiped = pages(2), *withheld = pages(2), *plain = pages(2);
    EQUAL(madvise(wiped, 2 * PAGE, MADV_WIPEONFORK), 0);
    EQUAL(madvise(withheld, 2 * PAGE, MADV_DONTFORK), 0);
    on_signal(SIGSEGV, handler, 0);
    REPEAT(5) {
        memset(wiped, 1, 2 * PAGE);
        memset(withheld, 2, 2 * PAGE);
        memset(plain, 3, 2 * PAGE);
        pid_t child = fork();
        if (child == 0) {
            CHECK(wiped[0] == 0 && wiped[2 * PAGE - 1] == 0 && plain[PAGE] == 3);
            if (sigsetjmp(back, 1) == 0)
                _exit(((volatile uint8_t *)withheld)[PAGE]);
            _exit(77);
        }
        ends(child, 77);
        CHECK(wiped[PAGE] == 1 && withheld[PAGE] == 2);
    }
    printf("zeroed and withheld\n");
    return 0;
}
