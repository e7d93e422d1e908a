// Mappings of which parts are given back: what is left is whole, what is gone is gone, what is put there is new.
#include "check.h"

#define COUNT 32

static bool there(uint8_t *page) { return msync(page, PAGE, MS_ASYNC) == 0; }

int main(void) {
    uint8_t *area = pages(COUNT);
    bool mapped[COUNT];
    memset(mapped, true, sizeof(mapped));
    uint64_t seed = 61;
    for (int i = 0; i < COUNT; i++)
        area[i * PAGE] = (uint8_t)(i + 1);
    REPEAT(10) {
        size_t first = next_random(&seed) % COUNT, count = next_random(&seed) % 4 + 1;
        count = first + count > COUNT ? COUNT - first : count;
        EQUAL(munmap(area + first * PAGE, count * PAGE), 0);
        memset(mapped + first, false, count);
        size_t again = next_random(&seed) % COUNT;
        if (!mapped[again]) {
            CHECK(mmap(area + again * PAGE, PAGE, PROT_READ | PROT_WRITE,
                       MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == area + again * PAGE);
            EQUAL(area[again * PAGE], 0);
            area[again * PAGE] = (uint8_t)(again + 1);
            mapped[again] = true;
        }
        for (int i = 0; i < COUNT; i++) {
            EQUAL(there(area + i * PAGE), mapped[i]);
            if (mapped[i])
                EQUAL(area[i * PAGE], i + 1);
        }
    }
    printf("holes in %d pages\n", COUNT);
    return 0;
}
