// Buffers that are there in part, or not to be written to: what a call returns, and where that leaves the file, and that what is there keeps what it was. And what
// is not for what a descriptor was opened for.
#include "check.h"
#include <sys/stat.h>
#include <sys/uio.h>

#define WHOLE 1500

int main(void) {
    uint8_t *area = pages(4), *buffer = area + PAGE - 500, text[WHOLE];
    int fd = open("bytes", O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK(fd >= 0);
    for (int i = 0; i < WHOLE; i++)
        text[i] = (uint8_t)(i % 251 + 1);
    EQUAL(write(fd, text, WHOLE), WHOLE);
    int only_read = open("bytes", O_RDONLY), only_write = open("bytes", O_WRONLY), path = open("bytes", O_PATH);
    CHECK(only_read >= 0 && only_write >= 0 && path >= 0);
    REPEAT(10) {
        EQUAL(mprotect(area, PAGE, PROT_READ | PROT_WRITE), 0);
        memset(area, 0, PAGE);
        // All of it is there, and found.
        for (int i = 0; i < 3; i++)
            EQUAL(pread(fd, buffer, 500, 0), 500);
        // Behind it is nothing that could be written to. How far it comes is the kernel's affair, but not that what is told is there.
        for (int access = 0; access < 2; access++) {
            EQUAL(mprotect(area + PAGE, PAGE, access ? PROT_READ : PROT_NONE), 0);
            memset(buffer, 0, 500);
            EQUAL(lseek(fd, 0, SEEK_SET), 0);
            ssize_t got = read(fd, buffer, 1000);
            CHECK(got == 500 || (got == -1 && errno == EFAULT));
            EQUAL(lseek(fd, 0, SEEK_CUR), got == -1 ? 0 : got);
            CHECK(got == -1 || memcmp(buffer, text, 500) == 0);
            EQUAL(lseek(fd, 10, SEEK_SET), 10);
            CHECK(read(fd, area + PAGE, 100) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_fstat, fd, area + PAGE) == -1 && errno == EFAULT);
            EQUAL(lseek(fd, 0, SEEK_CUR), 10);
            EQUAL(pread(fd, buffer, 1000, WHOLE - 400), 400);
            EQUAL(memcmp(buffer, text + WHOLE - 400, 400), 0);
            struct iovec pieces[2] = {{buffer, 500}, {area + PAGE, 100}};
            got = preadv(fd, pieces, 2, 0);
            CHECK(got == 500 || (got == -1 && errno == EFAULT));
            pieces[0].iov_base = area + PAGE;
            CHECK(readv(fd, pieces, 2) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_readv, fd, (void *)8, 1) == -1 && errno == EFAULT);
            EQUAL(lseek(fd, 0, SEEK_CUR), 10);
        }
        EQUAL(mprotect(area + PAGE, PAGE, PROT_NONE), 0);
        ssize_t put = pwrite(fd, buffer, 1000, 0);
        CHECK(put == 500 || (put == -1 && errno == EFAULT));
        CHECK(pwrite(fd, area + PAGE, 10, 0) == -1 && errno == EFAULT);
        EQUAL(pwrite(fd, text, WHOLE, 0), WHOLE);
        EQUAL(lseek(fd, 0, SEEK_END), WHOLE);
        EQUAL(mprotect(area + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
        // What was refused a moment ago is there now.
        EQUAL(pread(fd, buffer, 1000, 0), 1000);
        EQUAL(memcmp(buffer, text, 1000), 0);
        EQUAL(munmap(area, PAGE), 0);
        CHECK(pread(fd, area + PAGE - 1, 1, 0) == -1 && errno == EFAULT);
        CHECK(mmap(area, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
        EQUAL(pread(fd, area + PAGE - 1, 1, 3), 1);
        EQUAL(area[PAGE - 1], text[3]);
        // Descriptors that are for something else.
        struct stat told = {0};
        CHECK(pread(only_write, buffer, 1, 0) == -1 && errno == EBADF);
        CHECK(pwrite(only_read, buffer, 1, 0) == -1 && errno == EBADF);
        CHECK(pread(path, buffer, 1, 0) == -1 && errno == EBADF);
        CHECK(lseek(path, 0, SEEK_SET) == -1 && errno == EBADF);
        CHECK(fstat(path, &told) == 0 && told.st_size == WHOLE && S_ISREG(told.st_mode));
        CHECK(pread(fd, buffer, 1, -1) == -1 && errno == EINVAL);
        CHECK(lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
        CHECK(lseek(fd, 0, 99) == -1 && errno == EINVAL);
        EQUAL(read(fd, (void *)8, 0), 0);
        EQUAL(lseek(fd, 0, SEEK_SET), 0);
    }
    printf("told as it is\n");
    return 0;
}
