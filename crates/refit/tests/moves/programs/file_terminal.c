// A terminal of the program's own: lines, echo, its size, and signals to whoever is in front.
#include "check.h"
#include <sys/ioctl.h>
#include <termios.h>

static void expect(int fd, const char *wanted) {
    char text[64] = {0};
    size_t length = 0;
    while (length < strlen(wanted)) {
        ssize_t got = read(fd, text + length, strlen(wanted) - length);
        CHECK(got > 0);
        length += (size_t)got;
    }
    EQUAL(memcmp(text, wanted, length), 0);
}

int main(void) {
    REPEAT(2) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        struct winsize size = {.ws_row = 33, .ws_col = 77};
        struct termios how;
        CHECK(slave >= 0 && isatty(slave) && ioctl(master, TIOCSWINSZ, &size) == 0);
        memset(&size, 0, sizeof(size));
        CHECK(ioctl(slave, TIOCGWINSZ, &size) == 0 && size.ws_row == 33 && size.ws_col == 77);
        EQUAL(tcgetattr(slave, &how), 0);
        pid_t child = fork();
        if (child == 0) {
            // Whoever has started us may have had it ignored.
            signal(SIGINT, SIG_DFL);
            CHECK(setsid() == getpid() && ioctl(slave, TIOCSCTTY, 0) == 0);
            EQUAL(tcgetpgrp(slave), getpid());
            expect(slave, "a line\n");
            EQUAL(write(slave, "got it\n", 7), 7);
            for (;;)
                pause();
        }
        EQUAL(write(master, "a lixx\x7f\x7fne\n", 11), 11);
        // What was rubbed out was echoed so.
        expect(master, "a lixx\b \b\b \bne\r\ngot it\r\n");
        // As if somebody had pressed Ctrl-C.
        EQUAL(write(master, "\003", 1), 1);
        int status;
        EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
        close(slave);
        close(master);
    }
    printf("a line and an end\n");
    return 0;
}
