// System calls whose buffers, paths and structures lie over the border of two pages, and at the end of the last.
#include "check.h"
#include <sys/stat.h>
#include <sys/uio.h>

int main(void) {
    uint8_t *area = pages(4);
    EQUAL(munmap(area + 3 * PAGE, PAGE), 0);
    int ends_[2];
    EQUAL(pipe(ends_), 0);
    EQUAL(close(open("border", O_CREAT | O_WRONLY, 0640)), 0);
    REPEAT(10) {
        EQUAL(madvise(area, 3 * PAGE, MADV_DONTNEED), 0);
        for (int i = -3; i <= 3; i++)
            area[PAGE + i] = (uint8_t)('a' + i + 3);
        EQUAL(write(ends_[1], area + PAGE - 3, 7), 7);
        EQUAL(read(ends_[0], area + 2 * PAGE - 4, 7), 7);
        EQUAL(memcmp(area + 2 * PAGE - 4, "abcdefg", 7), 0);
        char *path = (char *)area + PAGE - 3;
        strcpy(path, "border");
        struct stat *told = (struct stat *)(area + 2 * PAGE - 20);
        EQUAL(stat(path, told), 0);
        EQUAL(told->st_mode & 0777, 0640);
        struct iovec *parts = (struct iovec *)(area + PAGE - 8);
        parts[0] = (struct iovec){area + 2 * PAGE - 2, 4};
        parts[1] = (struct iovec){area + 3 * PAGE - 4, 4};
        memcpy(area + 2 * PAGE - 2, "wxyz", 4);
        memcpy(area + 3 * PAGE - 4, "1234", 4);
        EQUAL(writev(ends_[1], parts, 2), 8);
        // Five bytes of room at the end: what does not fit stays in the pipe.
        ssize_t got = read(ends_[0], area + 3 * PAGE - 8, 8);
        EQUAL(got, 8);
        EQUAL(memcmp(area + 3 * PAGE - 8, "wxyz1234", 8), 0);
        path = (char *)area + 3 * PAGE - 3;
        memcpy(path, "bor", 3);
        CHECK(access(path, F_OK) == -1 && errno == EFAULT);
        CHECK(write(ends_[1], area + 3 * PAGE, 1) == -1 && errno == EFAULT);
    }
    printf("over borders\n");
    return 0;
}
