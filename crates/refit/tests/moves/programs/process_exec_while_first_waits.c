// A thread that is not the first makes the process another program, while the first waits for it and is stopped again and again: nothing of what is
// done with the one is put into the other program, whose first thread has its number.
#include "check.h"

static char **again;

static void *executes(void *unused) {
    usleep(1000);
    execv("/proc/self/exe", again);
    _exit(3);
    return unused;
}

int main(int count, char **words) {
    int left = count > 1 ? atoi(words[1]) : 40;
    char number[16];
    if (left == 0) {
        printf("the same program, forty-one times\n");
        return 0;
    }
    snprintf(number, sizeof number, "%d", left - 1);
    char *next[] = {words[0], number, NULL};
    pthread_t other;
    again = next;
    CHECK(pthread_create(&other, NULL, executes, NULL) == 0);
    pthread_join(other, NULL);
    return 4;
}
