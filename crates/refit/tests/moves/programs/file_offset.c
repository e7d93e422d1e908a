// Where a file is read and written next: shared by copies of a descriptor and by children, own for what is opened anew.
#include "check.h"

int main(void) {
    int fd = open("offsets", O_CREAT | O_TRUNC | O_RDWR, 0600);
    int copy = dup(fd), other = open("offsets", O_RDONLY);
    char text[32];
    CHECK(fd >= 0 && copy >= 0 && other >= 0);
    EQUAL(write(fd, "0123456789abcdefghijklmnopqrstuv", 32), 32);
    REPEAT(5) {
        EQUAL(lseek(fd, 4, SEEK_SET), 4);
        EQUAL(read(copy, text, 3), 3);
        EQUAL(memcmp(text, "456", 3), 0);
        EQUAL(lseek(fd, 0, SEEK_CUR), 7);
        pid_t child = fork();
        if (child == 0)
            _exit(read(fd, text, 5) == 5 && memcmp(text, "789ab", 5) == 0 ? 0 : 1);
        ends(child, 0);
        EQUAL(lseek(copy, 2, SEEK_CUR), 14);
        EQUAL(pread(fd, text, 2, 30), 2);
        EQUAL(memcmp(text, "uv", 2), 0);
        EQUAL(lseek(fd, 0, SEEK_CUR), 14);
        EQUAL(lseek(other, -2, SEEK_END), 30);
        EQUAL(read(other, text, 10), 2);
        EQUAL(read(other, text, 10), 0);
        EQUAL(lseek(other, 0, SEEK_SET), 0);
        CHECK(lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
    }
    printf("one offset for copies\n");
    return 0;
}
