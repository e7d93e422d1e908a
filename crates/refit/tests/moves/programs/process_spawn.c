// Programs that are started with files put in their place (posix_spawn), in pipelines.
#include "check.h"
#include <spawn.h>

extern char **environ;

int main(void) {
    REPEAT(2) {
        int in[2], out[2];
        pid_t child;
        char text[32] = {0};
        EQUAL(pipe2(in, O_CLOEXEC), 0);
        EQUAL(pipe2(out, O_CLOEXEC), 0);
        posix_spawn_file_actions_t actions;
        EQUAL(posix_spawn_file_actions_init(&actions), 0);
        EQUAL(posix_spawn_file_actions_adddup2(&actions, in[0], 0), 0);
        EQUAL(posix_spawn_file_actions_adddup2(&actions, out[1], 1), 0);
        char *arguments[] = {"tr", "a-z", "A-Z", NULL};
        EQUAL(posix_spawnp(&child, "tr", &actions, NULL, arguments, environ), 0);
        EQUAL(posix_spawn_file_actions_destroy(&actions), 0);
        close(in[0]);
        close(out[1]);
        EQUAL(write(in[1], "some words", 10), 10);
        close(in[1]);
        size_t length = 0;
        for (ssize_t got; (got = read(out[0], text + length, sizeof(text) - 1 - length)) > 0;)
            length += (size_t)got;
        EQUAL(strcmp(text, "SOME WORDS"), 0);
        ends(child, 0);
        close(out[0]);
        arguments[0] = "no such program";
        EQUAL(posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ), ENOENT);
    }
    printf("SOME WORDS\n");
    return 0;
}
