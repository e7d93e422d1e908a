// Numbers that threads sort and merge: in order, and all of them there.
#include "check.h"

#define COUNT 20000

static uint32_t numbers[COUNT], merged[COUNT];

static int compare(const void *a, const void *b) {
    uint32_t one = *(const uint32_t *)a, two = *(const uint32_t *)b;
    return (one > two) - (one < two);
}

static void *half(void *argument) {
    qsort(argument, COUNT / 2, sizeof(uint32_t), compare);
    return NULL;
}

int main(void) {
    uint64_t seed = 141;
    REPEAT(3) {
        uint64_t sum = 0, mixed = 0;
        for (int i = 0; i < COUNT; i++) {
            numbers[i] = (uint32_t)next_random(&seed);
            sum += numbers[i], mixed ^= numbers[i] * 2654435761u;
        }
        pthread_t other = start(half, numbers);
        half(numbers + COUNT / 2);
        join(other);
        for (int to = 0, a = 0, b = COUNT / 2; to < COUNT; to++)
            merged[to] = b == COUNT || (a < COUNT / 2 && numbers[a] <= numbers[b]) ? numbers[a++] : numbers[b++];
        for (int i = 0; i < COUNT; i++) {
            CHECK(i == 0 || merged[i - 1] <= merged[i]);
            sum -= merged[i], mixed ^= merged[i] * 2654435761u;
        }
        CHECK(sum == 0 && mixed == 0);
    }
    printf("%d numbers at a time\n", COUNT);
    return 0;
}
