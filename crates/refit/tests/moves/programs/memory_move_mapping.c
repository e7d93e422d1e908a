// Mappings that grow, shrink and are put elsewhere: their pages go with them.
#include "check.h"

static void fill(uint64_t *area, size_t from, size_t to) {
    for (size_t page = from; page < to; page++)
        area[page * PAGE / 8] = page * 17 + 1;
}

static void look(const uint64_t *area, size_t count) {
    for (size_t page = 0; page < count; page++)
        EQUAL(area[page * PAGE / 8], page * 17 + 1);
}

int main(void) {
    uint8_t *reserve = pages(64);
    REPEAT(5) {
        uint64_t *area = (uint64_t *)pages(4);
        size_t count = 4;
        fill(area, 0, count);
        while (count < 64) {
            area = mremap(area, count * PAGE, 2 * count * PAGE, MREMAP_MAYMOVE);
            CHECK(area != MAP_FAILED);
            EQUAL(area[(2 * count - 1) * PAGE / 8], 0);
            fill(area, count, 2 * count);
            count *= 2;
            look(area, count);
        }
        uint64_t *there = mremap(area, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, reserve);
        CHECK((uint8_t *)there == reserve);
        look(there, count);
        CHECK(mremap(there, count * PAGE, PAGE, 0) == there);
        CHECK(msync(there + PAGE / 8, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
        look(there, 1);
        CHECK(mremap(area, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
        // The rest of the reserve, for the next time.
        CHECK(mmap(reserve, 64 * PAGE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == reserve);
    }
    printf("grown, moved and shrunk\n");
    return 0;
}
