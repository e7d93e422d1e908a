// Sockets with names in a folder and pairs without: streams, datagrams and packets between processes.
#include "check.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&address, sizeof(address)) == 0 && listen(listener, 5) == 0);
    REPEAT(3) {
        int packets[2];
        EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets), 0);
        pid_t child = fork();
        if (child == 0) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            char text[32];
            close(packets[0]);
            EQUAL(connect(fd, (void *)&address, sizeof(address)), 0);
            EQUAL(send(fd, "hello ", 6, 0), 6);
            EQUAL(recv(packets[1], text, sizeof(text), 0), 3);
            EQUAL(recv(packets[1], text, 2, 0), 2);
            EQUAL(recv(packets[1], text, sizeof(text), 0), 1);
            EQUAL(recv(packets[1], text, sizeof(text), 0), 0);
            EQUAL(send(fd, "there", 5, 0), 5);
            _exit(0);
        }
        close(packets[1]);
        int fd = accept(listener, NULL, NULL);
        char text[32] = {0};
        EQUAL(recv(fd, text, 6, MSG_WAITALL), 6);
        CHECK(send(packets[0], "abc", 3, 0) == 3 && send(packets[0], "defghi", 6, 0) == 6 && send(packets[0], "j", 1, 0) == 1);
        close(packets[0]);
        EQUAL(recv(fd, text + 6, 10, MSG_WAITALL), 5);
        EQUAL(strcmp(text, "hello there"), 0);
        close(fd);
        ends(child, 0);
    }
    printf("hello there\n");
    return 0;
}
