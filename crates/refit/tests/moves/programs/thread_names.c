// Names of threads, set by themselves and by others.
#include "check.h"
#include <sys/prctl.h>

static pthread_barrier_t barrier;

static void *run(void *argument) {
    char name[16];
    EQUAL(prctl(PR_SET_NAME, "a name"), 0);
    EQUAL(prctl(PR_GET_NAME, name), 0);
    EQUAL(strcmp(name, "a name"), 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    EQUAL(prctl(PR_GET_NAME, name), 0);
    EQUAL(strcmp(name, "another"), 0);
    return argument;
}

int main(void) {
    char own[16], name[16];
    EQUAL(pthread_barrier_init(&barrier, NULL, 2), 0);
    EQUAL(prctl(PR_GET_NAME, own), 0);
    REPEAT(5) {
        pthread_t thread = start(run, NULL);
        pthread_barrier_wait(&barrier);
        EQUAL(pthread_getname_np(thread, name, sizeof(name)), 0);
        EQUAL(strcmp(name, "a name"), 0);
        EQUAL(pthread_setname_np(thread, "another"), 0);
        pthread_barrier_wait(&barrier);
        join(thread);
        EQUAL(prctl(PR_GET_NAME, name), 0);
        EQUAL(strcmp(name, own), 0);
    }
    printf("names kept\n");
    return 0;
}
