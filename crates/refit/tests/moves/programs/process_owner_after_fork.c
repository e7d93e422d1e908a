// A child is told its number by the kernel, in its own memory: its parent's threads still know theirs.
#include "check.h"

int main(void) {
    pthread_mutexattr_t attributes;
    EQUAL(pthread_mutexattr_init(&attributes), 0);
    EQUAL(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK), 0);
    pthread_mutex_t mutex;
    EQUAL(pthread_mutex_init(&mutex, &attributes), 0);
    REPEAT(20) {
        pid_t child = fork();
        if (child == 0) {
            // It owns what it locks, and not by its parent's number.
            EQUAL(pthread_mutex_lock(&mutex), 0);
            EQUAL(pthread_mutex_lock(&mutex), EDEADLK);
            EQUAL(mutex.__data.__owner, (int)gettid());
            _exit(0);
        }
        CHECK(child > 0);
        EQUAL(pthread_mutex_lock(&mutex), 0);
        EQUAL(mutex.__data.__owner, (int)gettid());
        EQUAL(pthread_mutex_unlock(&mutex), 0);
        ends(child, 0);
    }
    printf("everybody knows who they are\n");
    return 0;
}
