/* Counts the lines that it is told. With an argument it limits its system calls first, to all of them. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>

__attribute__((noinline)) int counted(int so_far) {
	__asm__ volatile("nop; nop; nop; nop; nop" ::: "memory");
	return so_far + 1;
}

int main(int count, char **arguments) {
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {1, &all};
	(void)arguments;
	if (count > 1 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))) return 1;
	int lines = 0;
	for (int c = 'r'; c != EOF; c = getchar()) {
		if (c == '\n') lines = counted(lines);
		if (c == '\n' || c == 'r') printf("%d\n", lines), fflush(stdout);
	}
	return 0;
}
