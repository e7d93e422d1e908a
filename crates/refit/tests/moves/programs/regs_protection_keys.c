// A page that is closed by a protection key, and the register that opens it: each thread's own.
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile sig_atomic_t code;

static void refused(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

int main(void) {
    int key = pkey_alloc(0, 0);
    if (key < 0) {
        printf("no protection keys here\n");
        return 0;
    }
    volatile uint8_t *page = pages(1);
    page[0] = 42;
    on_signal(SIGSEGV, refused, 0);
    EQUAL(pkey_mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE, key), 0);
    REPEAT(5) {
        EQUAL(pkey_set(key, 0), 0);
        EQUAL(page[0], 42);
        EQUAL(pkey_set(key, PKEY_DISABLE_ACCESS), 0);
        code = 0;
        if (sigsetjmp(back, 1) == 0) {
            (void)page[0];
            CHECK(!"it was read");
        }
        EQUAL(code, SEGV_PKUERR);
        EQUAL(pkey_get(key), PKEY_DISABLE_ACCESS);
    }
    printf("the page is closed and opened\n");
    return 0;
}
