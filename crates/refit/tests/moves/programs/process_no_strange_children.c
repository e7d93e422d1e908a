// A process has the children that it has made, whichever way it asks: one that is not traced (CLONE_UNTRACED) is one of them.
#include "check.h"

#include <sys/prctl.h>

int main(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    REPEAT(5) {
        int status;
        usleep(500);
        CHECK(waitpid(-1, &status, WNOHANG | __WALL) == -1 && errno == ECHILD);
        CHECK(waitpid(-1, &status, WNOHANG | __WCLONE) == -1 && errno == ECHILD);
        char text[64] = "";
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && (fgets(text, sizeof text, file) == NULL || text[0] == 0));
        fclose(file);
        int *word = (int *)pages(1);
        *word = 5;
        pid_t child = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            *word += 1;
            _exit(*word);
        }
        CHECK(waitpid(-1, &status, __WALL) == child && WEXITSTATUS(status) == 6 && *word == 5);
        CHECK(waitpid(-1, &status, __WALL) == -1 && errno == ECHILD);
        munmap(word, PAGE);
    }
    // Nor if it collects orphans.
    EQUAL(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    int collects = 0;
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &collects, 0, 0, 0) == 0 && collects == 1);
    printf("no strangers\n");
    return 0;
}
