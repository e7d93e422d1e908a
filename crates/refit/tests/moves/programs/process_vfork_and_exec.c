// A child that borrows its parent's memory until it runs another program: the parent goes on then, and not before.
#include "check.h"

int main(int argc, char **argv) {
    if (argc > 1)
        return atoi(argv[1]);
    volatile int step = 0;
    REPEAT(3) {
        step = 1;
        pid_t child = vfork();
        if (child == 0) {
            step = 2;
            execl("/proc/self/exe", argv[0], "23", (char *)NULL);
            _exit(99);
        }
        EQUAL(step, 2);
        ends(child, 23);
        child = vfork();
        if (child == 0) {
            step = 3;
            _exit(24);
        }
        EQUAL(step, 3);
        ends(child, 24);
    }
    printf("parents waited\n");
    return 0;
}
