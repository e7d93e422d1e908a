// Cells that live and die in steps that threads take together: the state after many of them is what one thread finds.
#include "check.h"

#define SIZE 96
#define STEPS 60

static uint8_t cells[2][SIZE][SIZE];
static pthread_barrier_t barrier;

static void step(int now, int row) {
    for (int column = 0; column < SIZE; column++) {
        int sum = -cells[now][row][column];
        for (int i = -1; i <= 1; i++)
            for (int j = -1; j <= 1; j++)
                sum += cells[now][(row + i + SIZE) % SIZE][(column + j + SIZE) % SIZE];
        cells[!now][row][column] = sum == 3 || (sum == 2 && cells[now][row][column]);
    }
}

static void *run(void *argument) {
    for (int i = 0; i < STEPS; i++) {
        for (int row = (int)(intptr_t)argument; row < SIZE; row += 2)
            step(i % 2, row);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static unsigned population(bool together) {
    uint64_t seed = 151;
    for (int i = 0; i < SIZE * SIZE; i++)
        cells[0][i / SIZE][i % SIZE] = next_random(&seed) >> 20 & 1;
    if (together) {
        pthread_t other = start(run, (void *)1);
        run((void *)0);
        join(other);
    } else
        for (int i = 0; i < STEPS; i++)
            for (int row = 0; row < SIZE; row++)
                step(i % 2, row);
    unsigned hash = 0;
    for (int i = 0; i < SIZE * SIZE; i++)
        hash = hash * 31 + cells[0][i / SIZE][i % SIZE];
    return hash;
}

int main(void) {
    EQUAL(pthread_barrier_init(&barrier, NULL, 2), 0);
    unsigned wanted = population(false);
    REPEAT(2)
        EQUAL(population(true), wanted);
    printf("%08x after %d steps\n", wanted, STEPS);
    return 0;
}
