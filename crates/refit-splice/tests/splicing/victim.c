// A program to splice into: two threads call functions whose bytes are known, and check the
// results.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

long work(long), leaf(long), calls(long), short_one(long), asks(long);
extern char gap[], work_ends[];
__asm__(
	".text\n.p2align 4\n"
	// 11 bytes before the loop: 1 + 3 + 3 + 2 + 2.
	".globl work\n.type work,@function\nwork:\n"
	"push %rbx\nmov %rdi,%rbx\nmov %rdi,%rax\nxor %ecx,%ecx\nxor %edx,%edx\n"
	"1: add %rbx,%rax\nadd $1,%ecx\ncmp $3,%ecx\njne 1b\n"
	// `lea 0(%rax),%rax` in four bytes: five with the next instruction, and no jump leads behind the
	// first.
	".globl work_ends\nwork_ends: .byte 0x48,0x8d,0x40,0\npop %rbx\nret\n.size work,.-work\n.p2align 4\n"
	// A leaf function that keeps data below its stack pointer, and a flag, across its first 9 bytes: 5
	// + 4.
	".globl leaf\n.type leaf,@function\nleaf:\n"
	"mov %rdi,-8(%rsp)\nlea 1(%rdi),%rax\nadd -8(%rsp),%rax\nret\n.size leaf,.-leaf\n.p2align 4\n"
	// A call in its first 6 bytes.
	".globl calls\n.type calls,@function\ncalls:\n"
	"push %rbp\ncall leaf\npop %rbp\nret\n.size calls,.-calls\n.p2align 4\n"
	".globl short_one\n.type short_one,@function\nshort_one:\n"
	"mov %rdi,%rax\n1: dec %rax\ntest $7,%al\njne 1b\nret\n.size short_one,.-short_one\n"
	".globl gap\ngap: .fill 8,1,0xcc\n.p2align 4\n"
	".globl asks\n.type asks,@function\nasks:\n"
	"mov $39,%al\nsyscall\nnop\nnop\nnop\nret\n.size asks,.-asks\n.p2align 4\n");

static volatile sig_atomic_t ticks;
static volatile int stop, wrong;
static void tick(int signal) { ticks++; (void)signal; }

static long once(long i) {
	long shorter = short_one(i | 7);
	if (work(i) != 4 * i || leaf(i) != 2 * i + 1 || calls(i) != 2 * i + 1 || shorter != ((i | 7) & ~7))
		wrong = 1;
	return work(i) + leaf(i);
}
static void *counted(void *n) {
	long sum = 0;
	for (long i = 0; i < (long)n; i++) {
		if (short_one(i | 7) != ((i | 7) & ~7)) wrong = 1;
		sum += work(i) + leaf(i);
	}
	return (void *)sum;
}
static void *endless(void *unused) {
	while (!stop) for (long i = 0; i < 1000; i++) once(i);
	return unused;
}
static void *waits(void *unused) {
	int fd = eventfd(0, 0), set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	while (!stop) {
		struct epoll_event got;
		if (epoll_wait(set, &got, 1, 20) < 0 || poll(0, 0, 1) < 0 || usleep(1000) < 0) wrong = 1;
	}
	return unused;
}

int main(void) {
	char line[64];
	pthread_t threads[2];
	printf("work %p leaf %p calls %p short_one %p asks %p gap %p work_ends %p\n", (void *)work, (void *)leaf,
	       (void *)calls, (void *)short_one, (void *)asks, (void *)gap, (void *)work_ends);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long n;
		if (sscanf(line, "work %ld", &n) == 1) {
			long sum = 0;
			void *part;
			for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, counted, (void *)n);
			for (int i = 0; i < 2; i++) pthread_join(threads[i], &part), sum += (long)part;
			printf("%ld%s\n", sum, wrong ? " wrong" : "");
		} else if (!strcmp(line, "begin\n") || !strcmp(line, "wait\n")) {
			struct itimerval often = {{0, 500}, {0, 500}};
			int waiting = line[0] == 'w';
			signal(SIGALRM, tick);
			for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, waiting ? waits : endless, 0);
			if (!waiting) setitimer(ITIMER_REAL, &often, 0);
			puts("begun");
			fflush(stdout);
			// The timer interrupts reading too.
			while (!fgets(line, sizeof line, stdin)) clearerr(stdin);
			struct itimerval never = {{0, 0}, {0, 0}};
			setitimer(ITIMER_REAL, &never, 0);
			stop = 1;
			for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
			puts(wrong ? "wrong" : waiting ? "waited" : ticks ? "right" : "no ticks");
		} else if (!strcmp(line, "vfork\n")) {
			// The parent cannot be stopped while its child borrows its memory.
			if (!vfork()) {
				char byte = 0;
				write(1, "borrowed\n", 9);
				while (read(0, &byte, 1) == 1 && byte != '\n');
				_exit(0);
			}
			puts("back");
		} else if (!strcmp(line, "fork\n")) {
			pid_t child = fork();
			if (!child) for (;;) pause();
			printf("%d\n", child);
		}
		fflush(stdout);
	}
	return 0;
}
