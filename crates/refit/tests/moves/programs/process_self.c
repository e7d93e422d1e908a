// What /proc/self tells: this program, its descriptors, its mappings, its memory.
#include "check.h"
#include <sys/stat.h>

// The protection of the mapping that an address is in, as four letters.
static void protection(const void *address, char *letters) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long begin, end;
    CHECK(maps != NULL);
    strcpy(letters, "none");
    while (fgets(line, sizeof(line), maps)) {
        char now[5];
        CHECK(sscanf(line, "%lx-%lx %4s", &begin, &end, now) == 3);
        if ((uintptr_t)address >= begin && (uintptr_t)address < end)
            strcpy(letters, now);
    }
    fclose(maps);
}

int main(void) {
    struct stat one, two;
    char letters[5];
    REPEAT(3) {
        int fd = open("told", O_CREAT | O_RDWR | O_TRUNC, 0600);
        char path[64], target[4096] = {0};
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        EQUAL(fstat(fd, &one) == 0 && stat(path, &two) == 0, 1);
        CHECK(one.st_ino == two.st_ino && one.st_dev == two.st_dev);
        CHECK(readlink(path, target, sizeof(target) - 1) > 5);
        CHECK(strcmp(strrchr(target, '/'), "/told") == 0);
        close(fd);
        uint8_t *area = pages(3);
        area[0] = 99;
        EQUAL(mprotect(area + PAGE, PAGE, PROT_READ), 0);
        protection(area, letters);
        CHECK(memcmp(letters, "rw-", 3) == 0);
        protection(area + PAGE, letters);
        CHECK(memcmp(letters, "r--", 3) == 0);
        protection((void *)(uintptr_t)main, letters);
        CHECK(memcmp(letters, "r-x", 3) == 0);
        EQUAL(munmap(area + PAGE, PAGE), 0);
        protection(area + PAGE, letters);
        EQUAL(strcmp(letters, "none"), 0);
        uint8_t byte = 0;
        fd = open("/proc/self/mem", O_RDWR);
        EQUAL(pread(fd, &byte, 1, (off_t)(uintptr_t)area), 1);
        EQUAL(byte, 99);
        close(fd);
        EQUAL(munmap(area, PAGE), 0);
        EQUAL(munmap(area + 2 * PAGE, PAGE), 0);
    }
    printf("told of itself\n");
    return 0;
}
