// A file that is mapped privately: what is written stays here, what is not follows the file.
#include "check.h"

#define COUNT 8

int main(void) {
    int fd = open("private", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, COUNT * PAGE) == 0);
    REPEAT(5) {
        uint8_t byte;
        for (int i = 0; i < COUNT; i++) {
            byte = (uint8_t)(i + 1);
            EQUAL(pwrite(fd, &byte, 1, i * PAGE), 1);
        }
        uint8_t *map = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(map != MAP_FAILED);
        for (int i = 0; i < COUNT; i += 2)
            map[i * PAGE] = 100;
        for (int i = 0; i < COUNT; i++) {
            EQUAL(pread(fd, &byte, 1, i * PAGE), 1);
            EQUAL(byte, i + 1);
            EQUAL(map[i * PAGE], i % 2 ? i + 1 : 100);
        }
        // Forgotten: as in the file again.
        EQUAL(madvise(map, COUNT * PAGE, MADV_DONTNEED), 0);
        for (int i = 0; i < COUNT; i++)
            EQUAL(map[i * PAGE], i + 1);
        EQUAL(munmap(map, COUNT * PAGE), 0);
    }
    printf("the file is as it was\n");
    return 0;
}
