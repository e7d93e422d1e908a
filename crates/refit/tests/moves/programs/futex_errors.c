// What a futex refuses: a word that is another by now, an address that is wrong, one that is not there, nonsense.
#include "check.h"
#include <linux/futex.h>

int main(void) {
    uint8_t *area = pages(2);
    int *word = (int *)area;
    EQUAL(munmap(area + PAGE, PAGE), 0);
    REPEAT(10) {
        *word = 3;
        CHECK(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 4, NULL, NULL, 0) == -1 && errno == EAGAIN);
        CHECK(syscall(SYS_futex, area + 1, FUTEX_WAIT_PRIVATE, 3, NULL, NULL, 0) == -1 && errno == EINVAL);
        CHECK(syscall(SYS_futex, area + PAGE, FUTEX_WAIT_PRIVATE, 3, NULL, NULL, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_futex, area + PAGE, FUTEX_WAKE, 1, NULL, NULL, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_futex, word, 63, 3, NULL, NULL, 0) == -1 && errno == ENOSYS);
        struct timespec wrong = {0, -1};
        CHECK(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 3, &wrong, NULL, 0) == -1 && errno == EINVAL);
        EQUAL(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
        EQUAL(*word, 3);
    }
    printf("6 refusals\n");
    return 0;
}
