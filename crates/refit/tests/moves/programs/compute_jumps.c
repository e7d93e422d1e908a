// Places to jump back to that are kept for long, with the registers that a function has to keep.
#include "check.h"
#include <setjmp.h>

static jmp_buf places[10];

__attribute__((noinline)) static void dive(int depth, int target) {
    volatile uint64_t frame[100];
    memset((void *)frame, depth, sizeof(frame));
    if (setjmp(places[depth]) == 0) {
        if (depth == 9)
            longjmp(places[target], 1);
        dive(depth + 1, target);
    }
    for (int i = 0; i < 100; i++)
        CHECK(frame[i] == 0x0101010101010101u * (unsigned)depth);
    CHECK(depth <= target);
}

int main(void) {
    REPEAT(5)
        for (int target = 0; target < 10; target++)
            if (target < 9)
                dive(0, target);
    printf("9 places to jump to\n");
    return 0;
}
