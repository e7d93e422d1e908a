// Reads and writes of many pieces, some of them empty, some over borders of pages.
#include "check.h"
#include <sys/uio.h>

int main(void) {
    int fd = open("pieces", O_CREAT | O_TRUNC | O_RDWR, 0600);
    uint8_t *from = pages(8), *to = pages(8);
    CHECK(fd >= 0);
    uint64_t seed = 91;
    REPEAT(5) {
        struct iovec out[16], in[16];
        size_t whole = 0, left;
        for (int i = 0; i < 8 * PAGE; i++)
            from[i] = (uint8_t)(next_random(&seed) >> 9);
        memset(to, 0, 8 * PAGE);
        for (int i = 0; i < 16; i++) {
            size_t size = next_random(&seed) % 5 ? next_random(&seed) % 2000 : 0;
            out[i] = (struct iovec){from + whole, size};
            whole += size;
        }
        EQUAL(pwritev(fd, out, 16, 100), whole);
        left = whole;
        for (int i = 0; i < 16; i++) {
            size_t size = i == 15 ? left : left / 3;
            in[i] = (struct iovec){to + whole - left, size};
            left -= size;
        }
        EQUAL(lseek(fd, 100, SEEK_SET), 100);
        EQUAL(readv(fd, in, 16), whole);
        EQUAL(memcmp(from, to, whole), 0);
        EQUAL(ftruncate(fd, 0), 0);
        CHECK(syscall(SYS_readv, fd, in, -1) == -1 && errno == EINVAL);
    }
    printf("16 pieces at a time\n");
    return 0;
}
