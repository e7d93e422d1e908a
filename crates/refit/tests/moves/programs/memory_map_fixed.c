// Mappings over others: what was there is gone where they lie, and nowhere else.
#include "check.h"

#define COUNT 32

int main(void) {
    uint8_t *area = pages(COUNT);
    uint8_t wanted[COUNT] = {0};
    uint64_t seed = 31;
    REPEAT(10) {
        size_t first = next_random(&seed) % COUNT, count = next_random(&seed) % (COUNT - first) + 1;
        void *got = mmap(area + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(got == area + first * PAGE);
        memset(wanted + first, 0, count);
        for (int i = 0; i < 8; i++) {
            size_t page = next_random(&seed) % COUNT;
            wanted[page] = (uint8_t)next_random(&seed);
            memset(area + page * PAGE, wanted[page], PAGE);
        }
        for (size_t page = 0; page < COUNT; page++)
            CHECK(area[page * PAGE] == wanted[page] && area[page * PAGE + PAGE - 1] == wanted[page]);
        got = mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(got == MAP_FAILED && errno == EEXIST);
    }
    printf("over %d pages\n", COUNT);
    return 0;
}
