// The C library's heap, used by several threads at once: blocks keep their bytes until they are given back.
#include "check.h"

#define BLOCKS 60

static void *run(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    uint8_t *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    REPEAT(300) {
        size_t i = next_random(&seed) % BLOCKS;
        for (size_t at = 0; at < sizes[i]; at += 61)
            EQUAL(blocks[i][at], (uint8_t)(i * 7 + at));
        size_t size = next_random(&seed) % (next_random(&seed) % 10 == 0 ? 300000 : 2000);
        if (size % 3 == 0) {
            free(blocks[i]);
            blocks[i] = malloc(size + 1);
        } else {
            blocks[i] = realloc(blocks[i], size + 1);
            for (size_t at = 0; at < sizes[i] && at < size; at += 61)
                EQUAL(blocks[i][at], (uint8_t)(i * 7 + at));
        }
        CHECK(blocks[i] != NULL);
        sizes[i] = size;
        for (size_t at = 0; at < size; at += 61)
            blocks[i][at] = (uint8_t)(i * 7 + at);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

int main(void) {
    pthread_t others[2] = {start(run, (void *)71), start(run, (void *)72)};
    run((void *)73);
    join(others[0]);
    join(others[1]);
    printf("%d blocks of each of 3 threads\n", BLOCKS);
    return 0;
}
