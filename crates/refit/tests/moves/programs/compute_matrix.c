// Products of matrices, by several threads in one memory, checked by a product that is far cheaper.
#include "check.h"

#define SIZE 64

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

static void *rows(void *argument) {
    for (int i = (int)(intptr_t)argument; i < SIZE; i += 3)
        for (int j = 0; j < SIZE; j++) {
            double sum = 0;
            for (int k = 0; k < SIZE; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    return NULL;
}

int main(void) {
    uint64_t seed = 131;
    double trace = 0;
    for (int turn = 0; turn < SIZE * SIZE; turn++) {
        a[turn / SIZE][turn % SIZE] = (double)(next_random(&seed) % 1000);
        b[turn / SIZE][turn % SIZE] = (double)(next_random(&seed) % 1000);
    }
    REPEAT(3) {
        memset(c, 0, sizeof(c));
        pthread_t others[2] = {start(rows, (void *)1), start(rows, (void *)2)};
        rows((void *)0);
        join(others[0]);
        join(others[1]);
        // All whole numbers, so nothing is rounded: c x = a (b x).
        trace = 0;
        for (int i = 0; i < SIZE; i++) {
            double left = 0, right = 0;
            for (int j = 0; j < SIZE; j++) {
                double part = 0;
                for (int k = 0; k < SIZE; k++)
                    part += b[j][k] * (k + 1);
                left += c[i][j] * (j + 1);
                right += a[i][j] * part;
            }
            CHECK(left == right);
            trace += c[i][i];
        }
    }
    printf("%.0f\n", trace);
    return 0;
}
