// Without SA_RESTART a read that blocks ends with EINTR, and with nothing taken.
#include "check.h"

static int ends_[2];
static atomic_int interrupted;

static void handler(int number, siginfo_t *info, void *context) { (void)number, (void)info, (void)context; }

// Until one has come while the other was reading.
static void *pester(void *argument) {
    pthread_t *reader = argument;
    while (!atomic_load(&interrupted)) {
        EQUAL(pthread_kill(*reader, SIGUSR1), 0);
        usleep(200);
    }
    return NULL;
}

int main(void) {
    on_signal(SIGUSR1, handler, 0);
    EQUAL(pipe(ends_), 0);
    REPEAT(3) {
        pthread_t self = pthread_self();
        char bytes[2] = {0};
        atomic_store(&interrupted, 0);
        pthread_t other = start(pester, &self);
        errno = 0;
        EQUAL(read(ends_[0], bytes, 2), -1);
        EQUAL(errno, EINTR);
        atomic_store(&interrupted, 1);
        join(other);
        EQUAL(write(ends_[1], "ab", 2), 2);
        EQUAL(read(ends_[0], bytes, 2), 2);
        EQUAL(memcmp(bytes, "ab", 2), 0);
    }
    printf("interrupted, and nothing taken\n");
    return 0;
}
