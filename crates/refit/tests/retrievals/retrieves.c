// Two threads touch the same pages, each of which is a mapping of its own, one thread after the other, as lines come in.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
enum { PAGE = 4096, PAGES = 64 };
static volatile char *area;
static sem_t go[2], done;
static void *touches(void *which) {
    sem_wait(&go[(long)which]);
    for (int page = 0; page < PAGES; page++) area[(2 * page + 1) * PAGE] += 1;
    sem_post(&done);
    sem_wait(&go[(long)which]);
    return 0;
}
int main(void) {
    area = mmap(0, (2 * PAGES + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++) {
        // Between any two there is one that nobody may touch.
        if (mprotect((char *)area + (2 * page + 1) * PAGE, PAGE, PROT_READ | PROT_WRITE)) return 1;
    }
    pthread_t threads[2];
    for (long which = 0; which < 2; which++) {
        sem_init(&go[which], 0, 0);
        if (pthread_create(&threads[which], 0, touches, (void *)which)) return 1;
    }
    for (int which = 0; which < 2; which++) {
        char line;
        if (read(0, &line, 1) != 1) return 1;
        sem_post(&go[which]);
        sem_wait(&done);
        if (write(1, ".\n", 2) != 2) return 1;
    }
    char line;
    while (read(0, &line, 1) > 0) { }
    for (int which = 0; which < 2; which++) {
        sem_post(&go[which]);
        pthread_join(threads[which], 0);
    }
    for (int page = 0; page < PAGES; page++) if (area[(2 * page + 1) * PAGE] != 2) return 1;
    return 0;
}
