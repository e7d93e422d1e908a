// Primes that threads sieve in one array, piece by piece, each piece by whoever is free.
#include "check.h"

#define LIMIT 200000
#define PIECE 5000

static uint8_t composite[LIMIT];
static atomic_int next, primes;

static void *sieve(void *argument) {
    for (int begin; (begin = atomic_fetch_add(&next, PIECE)) < LIMIT;) {
        int end = begin + PIECE, count = 0;
        for (int by = 2; by * by < end; by++)
            for (int i = begin < 2 * by ? 2 * by : (begin + by - 1) / by * by; i < end; i += by)
                composite[i] = 1;
        for (int i = begin < 2 ? 2 : begin; i < end; i++)
            count += !composite[i];
        atomic_fetch_add(&primes, count);
    }
    return argument;
}

int main(void) {
    REPEAT(2) {
        memset(composite, 0, sizeof(composite));
        atomic_store(&next, 0);
        atomic_store(&primes, 0);
        pthread_t others[2] = {start(sieve, NULL), start(sieve, NULL)};
        sieve(NULL);
        join(others[0]);
        join(others[1]);
        // Known since long.
        EQUAL(atomic_load(&primes), 17984);
    }
    printf("17984 primes below %d\n", LIMIT);
    return 0;
}
