// Memory that parent and child share, and memory that each has for itself after the fork.
#include "check.h"

#define COUNT 8

int main(void) {
    atomic_int *shared = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    volatile uint8_t *own = pages(COUNT);
    static volatile int data = 1;
    REPEAT(5) {
        atomic_store(shared, 0);
        memset((void *)own, 1, COUNT * PAGE);
        data = 1;
        pid_t child = fork();
        if (child == 0) {
            await(shared, 1);
            // Written by the parent meanwhile.
            for (int i = 0; i < COUNT; i++)
                CHECK(own[i * PAGE] == 1 && atomic_load(&shared[(i + 1) * PAGE / 4 - 1]) == i);
            CHECK(data == 1);
            memset((void *)own, 3, COUNT * PAGE);
            data = 3;
            atomic_store(shared, 2);
            await(shared, 3);
            _exit(own[0] == 3 && data == 3 ? 0 : 1);
        }
        memset((void *)own, 2, COUNT * PAGE);
        data = 2;
        for (int i = 0; i < COUNT; i++)
            atomic_store(&shared[(i + 1) * PAGE / 4 - 1], i);
        atomic_store(shared, 1);
        await(shared, 2);
        for (int i = 0; i < COUNT; i++)
            CHECK(own[i * PAGE] == 2);
        CHECK(data == 2);
        atomic_store(shared, 3);
        ends(child, 0);
    }
    printf("shared and apart\n");
    return 0;
}
