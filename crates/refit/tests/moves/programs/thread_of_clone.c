// A thread made without the library: its flags hold, and its word is cleared and told when it ends.
#include "check.h"
#include <linux/futex.h>

static int word;
static volatile int shared;

static int run(void *argument) {
    shared += (int)(intptr_t)argument;
    return 0;
}

int main(void) {
    uint8_t *stack = pages(16);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID |
                CLONE_PARENT_SETTID;
    REPEAT(5) {
        shared = 1;
        *(volatile int *)&word = -1;
        int number = clone(run, stack + 16 * PAGE, flags, (void *)41, &word, NULL, &word);
        CHECK(number > 0);
        for (int now; (now = *(volatile int *)&word) != 0;) {
            EQUAL(now, number);
            long got = syscall(SYS_futex, &word, FUTEX_WAIT, now, NULL, NULL, 0);
            CHECK(got == 0 || errno == EAGAIN || errno == EINTR);
        }
        EQUAL(shared, 42);
    }
    printf("told of its end\n");
    return 0;
}
