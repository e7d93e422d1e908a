// The same memory at two addresses: what is written at one is read at the other at once, by other threads too.
#include "check.h"

static volatile uint64_t *one, *two;
static atomic_int turn;

static void *run(void *argument) {
    for (uint64_t i = 1; i <= 200; i++) {
        while (atomic_load(&turn) == 0)
            sched_yield();
        EQUAL(two[i], i * 3);
        two[i] = i * 5;
        atomic_store(&turn, 0);
    }
    return argument;
}

int main(void) {
    int fd = memfd_create("two", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    two = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(one != MAP_FAILED && two != MAP_FAILED && one != two);
    REPEAT(2) {
        pthread_t other = start(run, NULL);
        for (uint64_t i = 1; i <= 200; i++) {
            one[i] = i * 3;
            atomic_store(&turn, 1);
            while (atomic_load(&turn) == 1)
                sched_yield();
            EQUAL(one[i], i * 5);
        }
        join(other);
    }
    printf("two addresses, one memory\n");
    return 0;
}
