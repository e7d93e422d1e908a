// The bases of fs and gs: each thread's own, in code and over system calls.
#include "check.h"
#include <asm/prctl.h>
#include <sys/auxv.h>

static _Thread_local uint64_t own;

static void *run(void *argument) {
    uint64_t area[2] = {(uintptr_t)argument * 1000, (uintptr_t)area};
    own = area[0] + 1;
    EQUAL(syscall(SYS_arch_prctl, ARCH_SET_GS, area), 0);
    REPEAT(20) {
        uint64_t value = 0, base = 0;
        for (unsigned i = 0; i < 20000; i++) {
            asm volatile("mov %%gs:0, %0\n mov %%gs:8, %1" : "=r"(value), "=r"(base));
            CHECK(value == area[0] && base == (uintptr_t)area);
            asm volatile("" : : : "memory");
            CHECK(own == area[0] + 1);
        }
        EQUAL(syscall(SYS_arch_prctl, ARCH_GET_GS, &base), 0);
        CHECK(base == (uintptr_t)area);
        EQUAL(syscall(SYS_arch_prctl, ARCH_GET_FS, &base), 0);
        asm volatile("mov %%fs:0, %0" : "=r"(value));
        CHECK(base == value);
        if (getauxval(AT_HWCAP2) & 2) {
            asm volatile("rdgsbase %0" : "=r"(base));
            CHECK(base == (uintptr_t)area);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t others[2] = {start(run, (void *)1), start(run, (void *)2)};
    run((void *)3);
    join(others[0]);
    join(others[1]);
    printf("2 bases of 3 threads kept\n");
    return 0;
}
