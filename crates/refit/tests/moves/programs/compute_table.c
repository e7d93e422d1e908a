// A table of a hundred thousand entries that is spread over many pages: each is found again, and none that is not there.
#include "check.h"

#define PLACES (1u << 15)

static struct {
    uint64_t key, value;
} table[PLACES];

static uint64_t *find(uint64_t key) {
    for (unsigned at = (unsigned)(key * 0x9e3779b97f4a7c15u >> 49);; at = (at + 1) % PLACES)
        if (table[at].key == key || table[at].key == 0) {
            table[at].key = key;
            return &table[at].value;
        }
}

int main(void) {
    REPEAT(2) {
        uint64_t seed = 171, sum = 0;
        memset(table, 0, sizeof(table));
        for (uint64_t i = 1; i <= 16000; i++)
            *find(next_random(&seed)) += i;
        seed = 171;
        for (uint64_t i = 1; i <= 16000; i++) {
            uint64_t *value = find(next_random(&seed));
            EQUAL(*value, i);
            sum += *value;
        }
        EQUAL(sum, 16000 * 16001 / 2);
    }
    printf("16000 entries found\n");
    return 0;
}
