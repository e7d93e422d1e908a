// Many digits of a number whose digits are known, by whole numbers that fill an array.
#include "check.h"

#define DIGITS 300
#define LENGTH (DIGITS * 10 / 3 + 1)

// One digit after the other, by a spigot; nines wait for what comes behind them.
static void digits(char *text) {
    unsigned array[LENGTH], nines = 0, waiting = 10, made = 0;
    for (int i = 0; i < LENGTH; i++)
        array[i] = 2;
    while (made < DIGITS) {
        unsigned carry = 0;
        for (unsigned i = LENGTH; i-- > 0;) {
            unsigned now = 10 * array[i] + carry * (i + 1), by = i ? 2 * i + 1 : 10;
            array[i] = now % by;
            carry = now / by;
        }
        if (carry == 9) {
            nines++;
            continue;
        }
        if (waiting < 10)
            text[made++] = (char)('0' + waiting + carry / 10);
        for (; nines > 0 && made < DIGITS; nines--)
            text[made++] = carry >= 10 ? '0' : '9';
        nines = 0, waiting = carry % 10;
    }
    text[DIGITS] = 0;
}

int main(void) {
    char text[DIGITS + 1];
    REPEAT(3) {
        digits(text);
        CHECK(memcmp(text, "314159265358979323846264338327950288419716939937510", 51) == 0);
    }
    printf("%.60s\n", text);
    return 0;
}
