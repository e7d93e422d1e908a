// Memory of a child that is read and written from outside (process_vm_readv and its like).
#include "check.h"
#include <sys/uio.h>

int main(void) {
    uint8_t *area = pages(4);
    int to[2], from[2];
    char byte;
    EQUAL(pipe(to), 0);
    EQUAL(pipe(from), 0);
    REPEAT(3) {
        memset(area, 1, 4 * PAGE);
        pid_t child = fork();
        if (child == 0) {
            memset(area, 2, 4 * PAGE);
            CHECK(write(from[1], "x", 1) == 1 && read(to[0], &byte, 1) == 1);
            _exit(area[PAGE] == 3 && area[PAGE - 1] == 2 ? 0 : 1);
        }
        EQUAL(read(from[0], &byte, 1), 1);
        uint8_t copy[2 * PAGE];
        struct iovec here = {copy, sizeof(copy)}, there = {area + PAGE / 2, sizeof(copy)};
        EQUAL(process_vm_readv(child, &here, 1, &there, 1, 0), sizeof(copy));
        for (size_t i = 0; i < sizeof(copy); i += 77)
            EQUAL(copy[i], 2);
        copy[0] = 3;
        here.iov_len = 1;
        there = (struct iovec){area + PAGE, 1};
        EQUAL(process_vm_writev(child, &here, 1, &there, 1, 0), 1);
        EQUAL(write(to[1], "x", 1), 1);
        ends(child, 0);
        EQUAL(area[PAGE], 1);
    }
    printf("read and written from outside\n");
    return 0;
}
