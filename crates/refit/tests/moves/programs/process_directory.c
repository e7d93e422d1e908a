// The current directory and the mask for new files: of the process, all its threads, and of children from then on.
#include "check.h"
#include <sys/stat.h>

static void *go(void *argument) {
    EQUAL(chdir(argument), 0);
    umask(argument == NULL ? 0 : 037);
    return NULL;
}

int main(void) {
    char top[4096], here[4096];
    CHECK(getcwd(top, sizeof(top)) != NULL);
    CHECK((mkdir("folder", 0700) == 0) || errno == EEXIST);
    umask(022);
    REPEAT(3) {
        struct stat told;
        join(start(go, "folder"));
        CHECK(getcwd(here, sizeof(here)) != NULL);
        CHECK(strncmp(here, top, strlen(top)) == 0 && strcmp(here + strlen(top), "/folder") == 0);
        close(open("made", O_CREAT | O_TRUNC | O_WRONLY, 0777));
        EQUAL(fstatat(AT_FDCWD, "made", &told, 0), 0);
        EQUAL(told.st_mode & 0777, 0740);
        pid_t child = fork();
        if (child == 0)
            _exit(unlink("made") == 0 && chdir("/") == 0 && umask(0) == 037 ? 0 : 1);
        ends(child, 0);
        EQUAL(umask(022), 037);
        EQUAL(chdir(top), 0);
        EQUAL(access("folder/made", F_OK), -1);
    }
    printf("one directory for all threads\n");
    return 0;
}
