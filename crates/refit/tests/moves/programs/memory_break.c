// The heap of the kernel: it grows and shrinks by brk, with zeros where it is new.
#include "check.h"

int main(void) {
    uint8_t *begin = sbrk(0);
    // To a page of its own, whatever the library has put there.
    CHECK(sbrk((intptr_t)(PAGE - (uintptr_t)begin % PAGE)) == begin);
    begin = sbrk(0);
    REPEAT(5) {
        for (int step = 0; step < 10; step++) {
            uint8_t *area = sbrk(3 * PAGE);
            CHECK(area == begin + step * 3 * PAGE);
            for (size_t i = 0; i < 3 * PAGE; i += 512)
                EQUAL(area[i], 0);
            memset(area, step + 1, 3 * PAGE);
        }
        for (int step = 0; step < 10; step++)
            CHECK(begin[step * 3 * PAGE] == step + 1 && begin[step * 3 * PAGE + 3 * PAGE - 1] == step + 1);
        CHECK(sbrk(-15 * PAGE) == begin + 30 * PAGE);
        EQUAL(begin[14 * PAGE], 5);
        CHECK(sbrk(PAGE) == begin + 15 * PAGE);
        EQUAL(begin[15 * PAGE], 0);
        EQUAL(brk(begin), 0);
        CHECK(sbrk(0) == begin);
    }
    printf("30 pages up and down\n");
    return 0;
}
