// Strings that are copied downwards: whoever goes on with the direction flag cleared copies to other places.
#include "check.h"

#define LENGTH (64 * PAGE)

int main(void) {
    uint8_t *from = pages(LENGTH / PAGE), *to = pages(LENGTH / PAGE);
    uint64_t seed = 1;
    for (size_t i = 0; i < LENGTH; i++)
        from[i] = (uint8_t)next_random(&seed);
    REPEAT(5) {
        memset(to, 0, LENGTH);
        const uint8_t *source = from + LENGTH - 1;
        uint8_t *target = to + LENGTH - 1;
        size_t count = LENGTH;
        uint64_t flags;
        asm volatile("lea -128(%%rsp), %%rsp\n std\n rep movsb\n pushf\n pop %0\n cld\n lea 128(%%rsp), %%rsp"
                     : "=a"(flags), "+S"(source), "+D"(target), "+c"(count)
                     :
                     : "cc", "memory");
        EQUAL(flags >> 10 & 1, 1);
        CHECK(count == 0 && source == from - 1 && target == to - 1);
        EQUAL(memcmp(from, to, LENGTH), 0);
    }
    printf("copied downwards\n");
    return 0;
}
