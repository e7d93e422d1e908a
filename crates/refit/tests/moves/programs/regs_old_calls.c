// Calls by the convention of 32-bit programs (int $0x80) have numbers of their own: 20 is getpid, and not writev.
#include "check.h"

int main(void) {
    REPEAT(100) {
        long answer;
        __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20l) : "memory", "r8", "r9", "r10", "r11");
        EQUAL(answer, getpid());
        __asm__ volatile("int $0x80" : "=a"(answer) : "a"(9999l) : "memory", "r8", "r9", "r10", "r11");
        EQUAL(answer, -ENOSYS);
    }
    printf("numbers of both kinds\n");
    return 0;
}
