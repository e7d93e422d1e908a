// A mapping that grows downwards when what is below it is touched, as stacks do.
#include "check.h"

int main(void) {
    REPEAT(5) {
        uint8_t *room = mmap(NULL, 600 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(room != MAP_FAILED);
        EQUAL(munmap(room, 600 * PAGE), 0);
        uint8_t *top = mmap(room + 590 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(top == room + 590 * PAGE);
        for (int page = 0; page < 64; page++) {
            volatile uint8_t *at = top - page * PAGE;
            EQUAL(at[0], 0);
            at[0] = (uint8_t)(page + 1);
        }
        for (int page = 0; page < 64; page++)
            EQUAL(top[-page * PAGE], page + 1);
        EQUAL(munmap(top - 63 * PAGE, 64 * PAGE), 0);
    }
    printf("64 pages down\n");
    return 0;
}
