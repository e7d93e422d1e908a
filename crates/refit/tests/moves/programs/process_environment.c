// Arguments, environment and what the kernel has put on the stack: where they were, and as they were.
#include "check.h"
#include <sys/auxv.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc == 1) {
        char *arguments[] = {argv[0], "one", "", "three words here", NULL};
        char *environment[] = {"A=1", "LONG=0123456789012345678901234567890123456789", "MOVES_MS=150", NULL};
        execve("/proc/self/exe", arguments, environment);
        return 1;
    }
    const char *name = (const char *)getauxval(AT_EXECFN);
    CHECK(name != NULL && getauxval(AT_RANDOM) != 0);
    uint8_t first[16];
    memcpy(first, (void *)getauxval(AT_RANDOM), 16);
    REPEAT(10) {
        EQUAL(argc, 4);
        CHECK(strcmp(argv[1], "one") == 0 && argv[2][0] == 0 && strcmp(argv[3], "three words here") == 0 && argv[4] == NULL);
        CHECK(strcmp(getenv("A"), "1") == 0 && strlen(getenv("LONG")) == 40);
        CHECK(strcmp(name, "/proc/self/exe") == 0 && getauxval(AT_PAGESZ) == PAGE);
        CHECK(memcmp(first, (void *)getauxval(AT_RANDOM), 16) == 0);
        char told[4096] = {0};
        int fd = open("/proc/self/cmdline", O_RDONLY);
        ssize_t length = read(fd, told, sizeof(told));
        CHECK(length > 22 && memcmp(told + length - 22, "one\0\0three words here", 22) == 0);
        close(fd);
    }
    printf("3 arguments, 3 variables\n");
    return 0;
}
