// The numbers of a process, its parent, its children and its threads are one set of numbers, wherever they run.
#include "check.h"

static void *numbers(void *argument) {
    pid_t *told = argument;
    told[0] = getpid(), told[1] = getppid(), told[2] = gettid();
    return NULL;
}

int main(void) {
    pid_t self = getpid(), parent = getppid();
    pid_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    REPEAT(5) {
        pid_t own[3];
        CHECK(getpid() == self && gettid() == self && getppid() == parent);
        join(start(numbers, own));
        CHECK(own[0] == self && own[1] == parent && own[2] != self);
        pid_t child = fork();
        if (child == 0) {
            numbers(shared);
            join(start(numbers, shared + 3));
            _exit(0);
        }
        ends(child, 0);
        CHECK(shared[0] == child && shared[1] == self && shared[2] == child);
        CHECK(shared[3] == child && shared[4] == self && shared[5] != child);
        char path[64], target[64] = {0};
        EQUAL(readlink("/proc/self", target, sizeof(target) - 1) > 0, 1);
        EQUAL(atoi(target), self);
        snprintf(path, sizeof(path), "/proc/%d", child);
        EQUAL(access(path, F_OK), -1);
    }
    printf("one set of numbers\n");
    return 0;
}
