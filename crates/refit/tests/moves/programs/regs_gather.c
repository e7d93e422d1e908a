// Loads of one instruction from many pages, any of which may be elsewhere: it is begun anew or goes on, but never skips one.
#include "check.h"
#include <immintrin.h>

#define COUNT 256

static uint8_t *area;

__attribute__((target("avx2"))) static uint64_t gathered(void) {
    __m256i sum = _mm256_setzero_si256();
    for (unsigned page = 0; page < COUNT; page += 8) {
        __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        places = _mm256_add_epi32(places, _mm256_set1_epi32((int)page));
        places = _mm256_mullo_epi32(places, _mm256_set1_epi32(PAGE / 4));
        sum = _mm256_add_epi32(sum, _mm256_i32gather_epi32((const int *)area, places, 4));
    }
    uint32_t parts[8];
    _mm256_storeu_si256((__m256i *)parts, sum);
    uint64_t whole = 0;
    for (unsigned i = 0; i < 8; i++)
        whole += parts[i];
    return whole;
}

int main(void) {
    uint32_t turn = 0;
    area = pages(COUNT);
    if (!__builtin_cpu_supports("avx2")) {
        printf("no AVX2 here\n");
        return 0;
    }
    REPEAT(10) {
        if (++turn % 16 == 0)
            EQUAL(madvise(area, COUNT * PAGE, MADV_DONTNEED), 0);
        for (unsigned page = 0; page < COUNT; page++)
            *(volatile uint32_t *)(area + page * PAGE) = page * 3 + turn;
        EQUAL(gathered(), 3 * COUNT * (COUNT - 1) / 2 + COUNT * turn);
    }
    printf("gathered from %d pages\n", COUNT);
    return 0;
}
