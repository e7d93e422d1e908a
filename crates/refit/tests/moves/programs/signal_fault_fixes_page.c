// A handler that opens the page that was touched, as collectors do: the access is tried again, once, where it was.
#include "check.h"

#define COUNT 64

static uint8_t *area;
static volatile sig_atomic_t faults;

static void open_page(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    CHECK(page >= area && page < area + COUNT * PAGE && info->si_code == SEGV_ACCERR);
    EQUAL(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
    faults++;
}

int main(void) {
    area = pages(COUNT);
    on_signal(SIGSEGV, open_page, 0);
    uint64_t sum = 0, wanted = 0;
    REPEAT(3) {
        EQUAL(mprotect(area, COUNT * PAGE, PROT_NONE), 0);
        faults = 0;
        for (unsigned i = 0; i < COUNT; i++) {
            volatile uint64_t *word = (volatile uint64_t *)(area + i * PAGE + 8 * i);
            *word += i;
            wanted += i;
        }
        EQUAL(faults, COUNT);
    }
    for (unsigned i = 0; i < COUNT; i++)
        sum += *(uint64_t *)(area + i * PAGE + 8 * i);
    CHECK(sum == wanted);
    printf("%d faults at a time, each mended\n", COUNT);
    return 0;
}
