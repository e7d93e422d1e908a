// Two threads that take turns by condition variables: a wake-up that is lost, and both wait.
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;
static uint64_t said;

static void *run(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int i = 0; i < 200; i++) {
        EQUAL(pthread_mutex_lock(&mutex), 0);
        while (turn != own)
            EQUAL(pthread_cond_wait(&changed[own], &mutex), 0);
        said = said * 31 + (uint64_t)own + 1;
        turn = !own;
        EQUAL(pthread_cond_signal(&changed[turn]), 0);
        EQUAL(pthread_mutex_unlock(&mutex), 0);
    }
    return NULL;
}

int main(void) {
    uint64_t wanted = 0;
    for (int i = 0; i < 400; i++)
        wanted = wanted * 31 + (uint64_t)(i % 2) + 1;
    REPEAT(2) {
        said = 0, turn = 0;
        pthread_t other = start(run, (void *)1);
        run((void *)0);
        join(other);
        CHECK(said == wanted);
    }
    printf("400 turns at a time\n");
    return 0;
}
