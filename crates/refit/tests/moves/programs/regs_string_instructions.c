// String instructions that are interrupted in their middle, with pages on both sides that are new at each turn.
#include "check.h"

#define COUNT 32
#define LENGTH (COUNT * PAGE)

int main(void) {
    uint8_t *from = pages(COUNT + 1) + 13, *to = pages(COUNT + 1) + 1027;
    uint64_t seed = 2;
    for (size_t i = 0; i < LENGTH; i++)
        from[i] = (uint8_t)(next_random(&seed) | 1);
    from[LENGTH - 5] = 0;
    REPEAT(5) {
        void *source = from, *target = to;
        size_t count = LENGTH / 8;
        EQUAL(madvise(to - 1027, LENGTH + PAGE, MADV_DONTNEED), 0);
        asm volatile("rep movsq" : "+S"(source), "+D"(target), "+c"(count) : : "memory");
        CHECK(count == 0 && source == from + LENGTH && target == to + LENGTH);
        source = from, target = to, count = LENGTH;
        asm volatile("repe cmpsb" : "+S"(source), "+D"(target), "+c"(count) : : "cc", "memory");
        CHECK(count == 0 && target == to + LENGTH);
        target = to, count = LENGTH;
        asm volatile("repne scasb" : "+D"(target), "+c"(count) : "a"(0) : "cc", "memory");
        CHECK(count == 4 && target == to + LENGTH - 4);
        target = to, count = LENGTH;
        asm volatile("rep stosb" : "+D"(target), "+c"(count) : "a"(0x5a) : "memory");
        for (size_t i = 0; i < LENGTH; i++)
            CHECK(to[i] == 0x5a);
    }
    printf("moved, compared, scanned and stored %d bytes\n", LENGTH);
    return 0;
}
