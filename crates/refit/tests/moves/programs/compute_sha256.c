// The digest of a stream, by SHA-256: one bit anywhere, and it is another.
#include "check.h"

static uint32_t turn(uint32_t word, int by) { return word >> by | word << (32 - by); }

// The first 32 bits of the fractional part of the square or cube root of a number, found bit by bit.
static uint32_t root(unsigned number, int power) {
    uint64_t low = 0, high = 20ull << 32;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        unsigned __int128 whole = (unsigned __int128)middle * middle;
        bool above = power == 2 ? whole > (unsigned __int128)number << 64
                                : whole * middle > (unsigned __int128)number << 96;
        *(above ? &high : &low) = middle;
    }
    return (uint32_t)low;
}

static uint32_t constants[64], initial[8];

static void block(uint32_t *state, const uint8_t *bytes) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += one, s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

int main(void) {
    int found = 0;
    for (unsigned number = 2; found < 64; number++) {
        bool prime = true;
        for (unsigned by = 2; by * by <= number; by++)
            prime = prime && number % by;
        if (prime && found < 8)
            initial[found] = root(number, 2);
        if (prime)
            constants[found++] = root(number, 3);
    }
    // "abc", padded, whose digest is in the standard.
    uint8_t abc[64] = {'a', 'b', 'c', 0x80, [63] = 24};
    uint32_t state[8];
    memcpy(state, initial, sizeof(state));
    block(state, abc);
    EQUAL(state[0], 0xba7816bf);
    EQUAL(state[7], 0xf20015ad);
    uint32_t first = 0;
    REPEAT(3) {
        uint8_t bytes[64];
        uint64_t seed = 121;
        memcpy(state, initial, sizeof(state));
        for (int i = 0; i < 3000; i++) {
            for (int at = 0; at < 64; at++)
                bytes[at] = (uint8_t)next_random(&seed);
            block(state, bytes);
        }
        first = first ? first : state[3];
        EQUAL(state[3], first);
    }
    for (int i = 0; i < 8; i++)
        printf("%08x%s", state[i], i == 7 ? "\n" : " ");
    return 0;
}
