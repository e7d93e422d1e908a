// Stores of one instruction to many pages under a mask, any of which may be protected or elsewhere.
#include "check.h"
#include <immintrin.h>

#define COUNT 64

static uint8_t *area;

__attribute__((target("avx512f"))) static void scatter(uint16_t mask, int value) {
    __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int page = 0; page < COUNT; page += 16) {
        __m512i at = _mm512_mullo_epi32(_mm512_add_epi32(places, _mm512_set1_epi32(page)), _mm512_set1_epi32(PAGE));
        _mm512_mask_i32scatter_epi32(area, mask, at, _mm512_set1_epi32(value), 1);
    }
}

int main(void) {
    area = pages(COUNT);
    uint32_t wanted[COUNT] = {0};
    uint64_t seed = 11;
    if (!__builtin_cpu_supports("avx512f")) {
        printf("no AVX-512 here\n");
        return 0;
    }
    REPEAT(10) {
        uint16_t mask = (uint16_t)next_random(&seed);
        int value = (int)next_random(&seed);
        scatter(mask, value);
        for (unsigned page = 0; page < COUNT; page++) {
            if (mask >> page % 16 & 1)
                wanted[page] = (uint32_t)value;
            EQUAL(*(volatile uint32_t *)(area + page * PAGE), wanted[page]);
        }
    }
    printf("scattered over %d pages\n", COUNT);
    return 0;
}
