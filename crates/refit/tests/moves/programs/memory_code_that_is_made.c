// Code that is made as compilers at run time do it: written, then made executable, called by all threads, given back.
#include "check.h"

static int (*add)(int);

static void *run(void *argument) {
    int sum = 0;
    for (int i = 0; i < 1000; i++)
        sum = add(sum);
    EQUAL(sum, 1000 * (int)(intptr_t)argument);
    return NULL;
}

int main(void) {
    int step = 0;
    REPEAT(5) {
        step = step % 1000 + 1;
        uint8_t *code = pages(2);
        // lea step(%rdi), %eax; ret, over the border of two pages.
        uint8_t bytes[] = {0x8d, 0x87, (uint8_t)step, (uint8_t)(step >> 8), 0, 0, 0xc3};
        memcpy(code + PAGE - 4, bytes, sizeof(bytes));
        EQUAL(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC), 0);
        add = (int (*)(int))(uintptr_t)(code + PAGE - 4);
        pthread_t other = start(run, (void *)(intptr_t)step);
        run((void *)(intptr_t)step);
        join(other);
        EQUAL(munmap(code, 2 * PAGE), 0);
    }
    printf("called by 2 threads\n");
    return 0;
}
