// Two processes add to a number in a file under each kind of lock, which belongs to the process, or to the open file, and append what they have seen.
// Closing another descriptor of the file gives up the first kind, and nothing else does.
#include "check.h"
#include <sys/file.h>

#define TIMES 25

static int fd, log_;

static void held(int kind, int type) {
    struct flock whole = {.l_type = (short)type, .l_whence = SEEK_SET};
    if (kind == 0)
        EQUAL(fcntl(fd, F_SETLKW, &whole), 0);
    else if (kind == 1)
        EQUAL(fcntl(fd, F_OFD_SETLKW, &whole), 0);
    else
        EQUAL(flock(fd, type == F_WRLCK ? LOCK_EX : LOCK_UN), 0);
}

static void adds(int kind) {
    for (int i = 0; i < TIMES; i++) {
        int number = -1;
        held(kind, F_WRLCK);
        EQUAL(pread(fd, &number, sizeof(number), 0), sizeof(number));
        EQUAL(pwrite(log_, &number, sizeof(number), 0), sizeof(number));
        number++;
        EQUAL(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
        held(kind, F_UNLCK);
    }
}

// Whether another process could have the whole file.
static bool is_free(void) {
    pid_t child = fork();
    if (child == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int own = open("number", O_RDWR);
        _exit(own >= 0 && fcntl(own, F_SETLK, &whole) == 0 ? 0 : 1);
    }
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    return status == 0;
}

int main(void) {
    REPEAT(1) {
        for (int kind = 0; kind < 3; kind++) {
            int number = 0, next[2 * TIMES];
            unlink("number");
            unlink("log");
            fd = open("number", O_CREAT | O_RDWR, 0600);
            // What is written goes to the end, wherever it is to go.
            log_ = open("log", O_CREAT | O_RDWR | O_APPEND, 0600);
            CHECK(fd >= 0 && log_ >= 0);
            EQUAL(write(fd, &number, sizeof(number)), sizeof(number));
            pid_t child = fork();
            if (child == 0) {
                close(fd);
                fd = open("number", O_RDWR);
                adds(kind);
                _exit(0);
            }
            adds(kind);
            ends(child, 0);
            EQUAL(lseek(log_, 0, SEEK_SET), 0);
            EQUAL(read(log_, next, sizeof(next)), sizeof(next));
            for (int i = 0; i < 2 * TIMES; i++)
                EQUAL(next[i], i);
            EQUAL(read(log_, next, 1), 0);
            close(log_);
            if (kind == 0) {
                held(kind, F_WRLCK);
                for (int i = 0; i < 20; i++) {
                    EQUAL(pread(fd, &number, sizeof(number), 0), sizeof(number));
                    EQUAL(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
                }
                CHECK(!is_free());
                int other = open("number", O_RDONLY);
                CHECK(other >= 0 && close(other) == 0);
                CHECK(is_free());
            }
            close(fd);
        }
    }
    printf("3 kinds of locks\n");
    return 0;
}
