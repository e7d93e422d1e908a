// Semaphores of System V: sets that are changed at once, waited for, and undone when a process ends.
#include "check.h"
#include <sys/sem.h>

static int id;

static int change(unsigned short number, short by, short flags) {
    struct sembuf one = {number, by, flags};
    return semop(id, &one, 1);
}

int main(void) {
    id = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600);
    CHECK(id >= 0);
    REPEAT(3) {
        for (int i = 0; i < 3; i++)
            EQUAL(semctl(id, i, SETVAL, i == 0), 0);
        pid_t child = fork();
        if (child == 0) {
            EQUAL(change(0, -1, SEM_UNDO), 0);
            EQUAL(change(1, 1, 0), 0);
            EQUAL(change(2, -1, 0), 0);
            // Ends with the first in its hands.
            _exit(0);
        }
        EQUAL(change(1, -1, 0), 0);
        CHECK(change(0, -1, IPC_NOWAIT) == -1 && errno == EAGAIN);
        EQUAL(change(2, 1, 0), 0);
        EQUAL(change(0, -1, 0), 0);
        ends(child, 0);
        struct sembuf both[] = {{1, 2, 0}, {2, -1, IPC_NOWAIT}};
        CHECK(semop(id, both, 2) == -1 && errno == EAGAIN);
        EQUAL(semctl(id, 1, GETVAL), 0);
    }
    EQUAL(semctl(id, 0, IPC_RMID), 0);
    printf("undone at the end\n");
    return 0;
}
