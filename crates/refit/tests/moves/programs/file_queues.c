// Queues of messages, of System V by kinds and of POSIX by priorities.
#include "check.h"
#include <mqueue.h>
#include <sys/msg.h>

struct message {
    long kind;
    char text[16];
};

int main(void) {
    char name[32];
    snprintf(name, sizeof(name), "/moves-%d", getpid());
    struct mq_attr room = {.mq_maxmsg = 8, .mq_msgsize = 16};
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &room);
    CHECK(queue != (mqd_t)-1 && mq_unlink(name) == 0);
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    CHECK(id >= 0);
    REPEAT(3) {
        pid_t child = fork();
        if (child == 0) {
            for (long kind = 1; kind <= 4; kind++) {
                struct message one = {kind, {(char)('a' + kind)}};
                EQUAL(msgsnd(id, &one, sizeof(one.text), 0), 0);
                EQUAL(mq_send(queue, one.text, 16, (unsigned)kind), 0);
            }
            _exit(0);
        }
        static const long order[] = {3, 1, 2, 4};
        for (int i = 0; i < 4; i++) {
            struct message one;
            EQUAL(msgrcv(id, &one, sizeof(one.text), i == 0 ? 3 : i == 3 ? 4 : -4, 0), sizeof(one.text));
            CHECK(one.kind == order[i] && one.text[0] == (char)('a' + order[i]));
        }
        ends(child, 0);
        for (unsigned wanted = 4; wanted > 0; wanted--) {
            char text[16];
            unsigned priority;
            EQUAL(mq_receive(queue, text, sizeof(text), &priority), 16);
            CHECK(priority == wanted && text[0] == (char)('a' + wanted));
        }
    }
    EQUAL(msgctl(id, IPC_RMID, NULL), 0);
    printf("4 messages through 2 queues at a time\n");
    return 0;
}
