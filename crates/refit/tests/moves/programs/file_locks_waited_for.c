// Who waits for a lock gets it when it is given back: by processes, and by descriptions that are opened apart.
#include "check.h"
#include <sys/file.h>

int main(void) {
    int fd = open("waited", O_CREAT | O_TRUNC | O_RDWR, 0600);
    atomic_int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(fd >= 0 && shared != MAP_FAILED);
    REPEAT(3) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        atomic_store(&shared[0], 0);
        atomic_store(&shared[1], 0);
        EQUAL(fcntl(fd, F_SETLK, &all), 0);
        EQUAL(flock(fd, LOCK_EX), 0);
        pid_t child = fork();
        if (child == 0) {
            int own = open("waited", O_RDWR);
            CHECK(own >= 0 && flock(own, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
            atomic_store(&shared[0], 1);
            EQUAL(fcntl(own, F_SETLKW, &all), 0);
            CHECK(atomic_load(&shared[1]) >= 1);
            EQUAL(flock(own, LOCK_SH), 0);
            EQUAL(atomic_load(&shared[1]), 2);
            _exit(0);
        }
        await(&shared[0], 1);
        usleep(1000);
        atomic_store(&shared[1], 1);
        all.l_type = F_UNLCK;
        EQUAL(fcntl(fd, F_SETLK, &all), 0);
        usleep(1000);
        atomic_store(&shared[1], 2);
        EQUAL(flock(fd, LOCK_UN), 0);
        ends(child, 0);
    }
    printf("got when given back\n");
    return 0;
}
