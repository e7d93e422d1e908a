// What is to be done at the end of a program is done, in its order, once, and not by _exit.
#include "check.h"

static int fd;

static void first(void) { (void)!write(fd, "1", 1); }
static void second(void) { (void)!write(fd, "2", 1); }
static void third(int code, void *argument) { (void)!write(fd, code == 81 ? argument : "?", 1); }
__attribute__((destructor)) static void last(void) {
    if (fd)
        (void)!write(fd, "4", 1);
}

int main(void) {
    int ends_[2];
    EQUAL(pipe(ends_), 0);
    REPEAT(3) {
        char said[8] = {0};
        pid_t child = fork();
        if (child == 0) {
            fd = ends_[1];
            on_exit(third, "3");
            atexit(second);
            atexit(first);
            exit(81);
        }
        ends(child, 81);
        EQUAL(read(ends_[0], said, 7), 4);
        EQUAL(strcmp(said, "1234"), 0);
        child = fork();
        if (child == 0) {
            fd = ends_[1];
            atexit(first);
            (void)!write(fd, "x", 1);
            _exit(82);
        }
        ends(child, 82);
        EQUAL(read(ends_[0], said, 7), 1);
        EQUAL(said[0], 'x');
    }
    printf("in their order\n");
    return 0;
}
