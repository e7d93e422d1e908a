// Mappings that come and go: each begins with zeros, keeps what is written, and is gone when it is given back.
#include "check.h"

#define COUNT 16

int main(void) {
    uint64_t seed = 21;
    REPEAT(10) {
        uint8_t *areas[COUNT];
        size_t sizes[COUNT];
        for (int i = 0; i < COUNT; i++) {
            sizes[i] = next_random(&seed) % 20 + 1;
            areas[i] = pages(sizes[i]);
            for (size_t page = 0; page < sizes[i]; page++) {
                EQUAL(areas[i][page * PAGE + 99], 0);
                memset(areas[i] + page * PAGE, i + 1, PAGE / 2);
            }
        }
        for (int i = COUNT - 1; i >= 0; i--) {
            for (size_t page = 0; page < sizes[i]; page++)
                CHECK(areas[i][page * PAGE] == i + 1 && areas[i][page * PAGE + PAGE / 2] == 0);
            EQUAL(munmap(areas[i], sizes[i] * PAGE), 0);
        }
    }
    printf("%d mappings at a time\n", COUNT);
    return 0;
}
