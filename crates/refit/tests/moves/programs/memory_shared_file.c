// A file that is mapped and written, read and written by calls too: all see the same bytes.
#include "check.h"

#define COUNT 8

int main(void) {
    int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, COUNT * PAGE) == 0);
    uint8_t *one = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t *two = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 3 * PAGE);
    CHECK(one != MAP_FAILED && two != MAP_FAILED);
    uint64_t seed = 51;
    REPEAT(10) {
        uint64_t value = next_random(&seed), read_ = 0;
        size_t at = next_random(&seed) % (COUNT * PAGE - 8);
        memcpy(one + at, &value, 8);
        EQUAL(pread(fd, &read_, 8, (off_t)at), 8);
        CHECK(read_ == value);
        value = next_random(&seed);
        EQUAL(pwrite(fd, &value, 8, 3 * PAGE + 40), 8);
        CHECK(memcmp(one + 3 * PAGE + 40, &value, 8) == 0 && memcmp(two + 40, &value, 8) == 0);
        EQUAL(msync(one, COUNT * PAGE, MS_SYNC), 0);
    }
    printf("one file, four ways\n");
    return 0;
}
