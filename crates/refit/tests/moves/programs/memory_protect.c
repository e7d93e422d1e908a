// What a page may be used for, page by page, as it was said last.
#include "check.h"
#include <setjmp.h>

#define COUNT 16

static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    siglongjmp(back, 1);
}

static bool works(volatile uint8_t *page, bool write) {
    if (sigsetjmp(back, 1))
        return false;
    if (write)
        *page = 7;
    else
        (void)*page;
    return true;
}

int main(void) {
    uint8_t *area = pages(COUNT);
    int wanted[COUNT];
    uint64_t seed = 8;
    on_signal(SIGSEGV, handler, 0);
    for (int i = 0; i < COUNT; i++)
        wanted[i] = PROT_READ | PROT_WRITE;
    REPEAT(5) {
        static const int kinds[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
        size_t first = next_random(&seed) % COUNT, count = next_random(&seed) % (COUNT - first) + 1;
        int kind = kinds[next_random(&seed) % 4];
        EQUAL(mprotect(area + first * PAGE, count * PAGE, kind), 0);
        for (size_t i = first; i < first + count; i++)
            wanted[i] = kind;
        for (size_t i = 0; i < COUNT; i++) {
            EQUAL(works(area + i * PAGE, false), wanted[i] != PROT_NONE);
            EQUAL(works(area + i * PAGE, true), (wanted[i] & PROT_WRITE) != 0);
        }
    }
    printf("4 protections of %d pages\n", COUNT);
    return 0;
}
