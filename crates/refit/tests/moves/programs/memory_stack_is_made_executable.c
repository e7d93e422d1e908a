// The access to a stack is changed from its beginning on (PROT_GROWSDOWN), as the dynamic linker does for libraries that want that.
#include "check.h"

int main(void) {
    uint8_t *other = pages(1);
    REPEAT(10) {
        uint8_t here;
        void *page = (void *)((uintptr_t)&here & -(uintptr_t)PAGE);
        EQUAL(mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN), 0);
        // What is no stack does not grow.
        CHECK(mprotect(other, PAGE, PROT_READ | PROT_GROWSDOWN) == -1 && errno == EINVAL);
        other[0]++;
        usleep(1000);
    }
    printf("the stack is one still\n");
    return 0;
}
