// A large part of the address space that is reserved first and opened piece by piece, as garbage collectors do.
#include "check.h"

#define PIECES 64
#define APART (4ul << 20)

int main(void) {
    REPEAT(5) {
        uint8_t *area = mmap(NULL, PIECES * APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(area != MAP_FAILED);
        for (size_t i = 0; i < PIECES; i++) {
            EQUAL(mprotect(area + i * APART, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
            EQUAL(area[i * APART + PAGE], 0);
            area[i * APART + PAGE] = (uint8_t)(i + 1);
        }
        for (size_t i = 0; i < PIECES; i += 2)
            EQUAL(madvise(area + i * APART, 2 * PAGE, MADV_DONTNEED), 0);
        for (size_t i = 0; i < PIECES; i++)
            EQUAL(area[i * APART + PAGE], i % 2 ? i + 1 : 0);
        EQUAL(munmap(area, PIECES * APART), 0);
    }
    printf("%d pieces of 256 MB\n", PIECES);
    return 0;
}
