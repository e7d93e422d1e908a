// Readers see what one writer has left, whole; several of them at once are no fault.
#include "check.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t words[3 * PAGE / 8];
static atomic_int done;

static void *read_(void *argument) {
    while (!atomic_load(&done)) {
        EQUAL(pthread_rwlock_rdlock(&lock), 0);
        uint64_t seen = words[0];
        for (size_t i = 0; i < sizeof(words) / 8; i += 37)
            CHECK(words[i] == seen + i);
        EQUAL(pthread_rwlock_unlock(&lock), 0);
        sched_yield();
    }
    return argument;
}

int main(void) {
    for (size_t i = 0; i < sizeof(words) / 8; i++)
        words[i] = i;
    pthread_t readers[2] = {start(read_, NULL), start(read_, NULL)};
    REPEAT(20) {
        EQUAL(pthread_rwlock_wrlock(&lock), 0);
        CHECK(pthread_rwlock_tryrdlock(&lock) != 0);
        for (size_t i = 0; i < sizeof(words) / 8; i++)
            words[i]++;
        EQUAL(pthread_rwlock_unlock(&lock), 0);
        sched_yield();
    }
    atomic_store(&done, 1);
    join(readers[0]);
    join(readers[1]);
    printf("readers saw whole things\n");
    return 0;
}
