// A search by recursion whose result is known.
#include "check.h"

static int place(unsigned size, unsigned columns, unsigned left, unsigned right) {
    unsigned all = (1u << size) - 1;
    if (columns == all)
        return 1;
    int count = 0;
    for (unsigned free_ = all & ~(columns | left | right); free_; free_ &= free_ - 1) {
        unsigned here = free_ & -free_;
        count += place(size, columns | here, (left | here) << 1, (right | here) >> 1);
    }
    return count;
}

int main(void) {
    REPEAT(2) {
        EQUAL(place(8, 0, 0, 0), 92);
        EQUAL(place(9, 0, 0, 0), 352);
        EQUAL(place(10, 0, 0, 0), 724);
    }
    printf("92, 352 and 724 ways\n");
    return 0;
}
