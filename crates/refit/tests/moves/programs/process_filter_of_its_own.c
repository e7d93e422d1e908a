// What a program's own filter wants to tell a tracer is not made, and fails with ENOSYS, since nobody traces for it; whatever the message.
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static int child_with(uint32_t message) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | message),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, rules};
    pid_t child = fork();
    if (child == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
        for (int i = 0; i < 5; i++) {
            errno = 0;
            if (syscall(SYS_getppid) != -1 || errno != ENOSYS)
                _exit(1);
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void) {
    // Those that filters of refit's have, among others.
    static const uint32_t messages[] = {0, 1, 0x6d70, 0x666b, 0x7764, 0x7271, 0x7063, 0x6d74, 0xffff};
    REPEAT(2)
        for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
            EQUAL(child_with(messages[i]), 0);
    printf("nobody traces\n");
    return 0;
}
