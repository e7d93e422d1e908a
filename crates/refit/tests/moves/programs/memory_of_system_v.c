// Shared memory of System V: attached twice, by a child too, and gone when the last has left.
#include "check.h"
#include <sys/shm.h>

int main(void) {
    REPEAT(5) {
        int id = shmget(IPC_PRIVATE, 3 * PAGE, IPC_CREAT | 0600);
        CHECK(id >= 0);
        volatile int *one = shmat(id, NULL, 0), *two = shmat(id, NULL, SHM_RDONLY);
        CHECK((void *)one != (void *)-1 && (void *)two != (void *)-1 && one != two);
        EQUAL(shmctl(id, IPC_RMID, NULL), 0);
        one[PAGE / 4] = 11;
        EQUAL(two[PAGE / 4], 11);
        pid_t child = fork();
        if (child == 0) {
            one[0] = two[PAGE / 4] * 2;
            _exit(shmdt((void *)one) == 0 ? 0 : 1);
        }
        ends(child, 0);
        EQUAL(two[0], 22);
        struct shmid_ds told;
        EQUAL(shmctl(id, IPC_STAT, &told), 0);
        EQUAL(told.shm_nattch, 2);
        EQUAL(shmdt((void *)one), 0);
        EQUAL(shmdt((void *)two), 0);
        CHECK(shmctl(id, IPC_STAT, &told) == -1);
    }
    printf("attached and left\n");
    return 0;
}
