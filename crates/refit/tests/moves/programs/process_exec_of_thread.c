// A thread that is not the first becomes another program: the others end, and the process keeps its number.
#include "check.h"

static char *self;

static void *wait_(void *argument) {
    for (;;)
        pause();
    return argument;
}

static void *become(void *argument) {
    char number[16];
    snprintf(number, sizeof(number), "%d", getpid());
    execl("/proc/self/exe", self, number, (char *)NULL);
    return argument;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return getpid() == atoi(argv[1]) && gettid() == getpid() ? 41 : 42;
    self = argv[0];
    REPEAT(3) {
        pid_t child = fork();
        if (child == 0) {
            // The last to be made: while one becomes another, the kernel makes no more (EAGAIN).
            for (int i = 0; i < 4; i++)
                start(i == 3 ? become : wait_, NULL);
            wait_(NULL);
        }
        ends(child, 41);
    }
    printf("the number is the process's\n");
    return 0;
}
