// Threads that compute in their memory while another maps, protects and gives back beside them.
#include "check.h"

static atomic_int done;

static void *compute(void *argument) {
    uint8_t *own = pages(4);
    uint64_t seed = (uintptr_t)argument;
    while (!atomic_load(&done)) {
        uint8_t value = (uint8_t)next_random(&seed);
        memset(own, value, 4 * PAGE);
        for (size_t i = 0; i < 4 * PAGE; i += 97)
            EQUAL(own[i], value);
    }
    EQUAL(munmap(own, 4 * PAGE), 0);
    return NULL;
}

int main(void) {
    pthread_t others[2] = {start(compute, (void *)81), start(compute, (void *)82)};
    REPEAT(20) {
        uint8_t *area = pages(8);
        memset(area, 5, 8 * PAGE);
        EQUAL(mprotect(area + 2 * PAGE, 2 * PAGE, PROT_READ), 0);
        uint8_t *moved = mremap(area, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
        // Of two mappings now.
        if (moved == MAP_FAILED)
            EQUAL(errno, EFAULT), moved = area;
        CHECK(moved[0] == 5 && moved[3 * PAGE] == 5 && moved[7 * PAGE] == 5);
        EQUAL(munmap(moved, 8 * PAGE), 0);
    }
    atomic_store(&done, 1);
    join(others[0]);
    join(others[1]);
    printf("nobody was disturbed\n");
    return 0;
}
