// Code that is written over while it is used: what runs is what was written last, wherever it runs.
#include "check.h"

int main(void) {
    uint8_t *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    int (*number)(void) = (int (*)(void))(uintptr_t)code;
    uint32_t value = 0;
    REPEAT(20) {
        // mov $value, %eax; ret
        value = value * 5 + 3;
        code[0] = 0xb8;
        memcpy(code + 1, &value, 4);
        code[5] = 0xc3;
        __builtin___clear_cache((char *)code, (char *)code + 6);
        EQUAL((uint32_t)number(), value);
    }
    printf("runs what was written last\n");
    return 0;
}
