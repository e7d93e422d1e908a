// Pages that are forgotten (MADV_DONTNEED) are zero, those beside them are not; advice changes nothing.
#include "check.h"

#define COUNT 24

int main(void) {
    uint8_t *area = pages(COUNT);
    uint8_t wanted[COUNT] = {0};
    uint64_t seed = 41;
    static const int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED};
    REPEAT(10) {
        for (int i = 0; i < COUNT; i++) {
            wanted[i] = (uint8_t)next_random(&seed);
            memset(area + i * PAGE, wanted[i], PAGE);
        }
        size_t first = next_random(&seed) % COUNT, count = next_random(&seed) % (COUNT - first) + 1;
        EQUAL(madvise(area + first * PAGE, count * PAGE, MADV_DONTNEED), 0);
        memset(wanted + first, 0, count);
        EQUAL(madvise(area, COUNT * PAGE, advice[next_random(&seed) % 4]), 0);
        for (int i = 0; i < COUNT; i++)
            CHECK(area[i * PAGE] == wanted[i] && area[i * PAGE + PAGE - 1] == wanted[i]);
    }
    printf("forgotten, and nothing else\n");
    return 0;
}
