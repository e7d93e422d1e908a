// Locks of parts of files: the process's, seen by others under its number, gone with it and with any close of the file.
#include "check.h"

static struct flock part(short kind, off_t from, off_t length) {
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = from, .l_len = length};
}

int main(void) {
    int fd = open("locked", O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK(fd >= 0);
    REPEAT(3) {
        struct flock lock = part(F_WRLCK, 10, 20);
        EQUAL(fcntl(fd, F_SETLK, &lock), 0);
        pid_t child = fork();
        if (child == 0) {
            struct flock other = part(F_RDLCK, 25, 10);
            CHECK(fcntl(fd, F_SETLK, &other) == -1 && (errno == EAGAIN || errno == EACCES));
            EQUAL(fcntl(fd, F_GETLK, &other), 0);
            CHECK(other.l_type == F_WRLCK && other.l_pid == getppid() && other.l_start == 10 && other.l_len == 20);
            other = part(F_WRLCK, 30, 5);
            EQUAL(fcntl(fd, F_SETLK, &other), 0);
            _exit(0);
        }
        ends(child, 0);
        lock = part(F_WRLCK, 0, 0);
        EQUAL(fcntl(fd, F_SETLK, &lock), 0);
        // Any descriptor of the file will do.
        EQUAL(close(open("locked", O_RDONLY)), 0);
        child = fork();
        if (child == 0) {
            struct flock other = part(F_WRLCK, 0, 0);
            _exit(fcntl(fd, F_GETLK, &other) == 0 && other.l_type == F_UNLCK ? 0 : 1);
        }
        ends(child, 0);
    }
    printf("locked and left\n");
    return 0;
}
