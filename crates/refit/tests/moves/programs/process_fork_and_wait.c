// Children and their exit codes, waited for in another order than they end.
#include "check.h"

int main(void) {
    REPEAT(3) {
        pid_t children[6];
        for (int i = 0; i < 6; i++) {
            children[i] = fork();
            if (children[i] == 0)
                _exit(i * 11 + 1);
            CHECK(children[i] > 0);
        }
        for (int i = 5; i >= 0; i--)
            ends(children[i], i * 11 + 1);
        CHECK(wait(NULL) == -1 && errno == ECHILD);
    }
    printf("6 children at a time\n");
    return 0;
}
