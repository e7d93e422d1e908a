// A program that checks all the time what refit must not touch: registers, faults and what is told of them, waiting calls, writes that take long.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static char *volatile page;
static volatile long turns[4];
static _Thread_local volatile long ticks;
static void wrong(const char *what) {
	fprintf(stderr, "wrong: %s\n", what);
	_exit(3);
}
static void on_fault(int signal, siginfo_t *info, void *context) {
	(void)signal, (void)context;
	if (info->si_code != SEGV_ACCERR || (char *)info->si_addr != page + 8) wrong("a fault");
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}
static void on_tick(int signal) { (void)signal, ticks++; }
__attribute__((noinline)) static void touch(volatile char *at) { at[8] = 1; }
__attribute__((noinline)) static long work(long x) {
	__asm__ volatile("" : "+r"(x)::"memory");
	return 3 * x + 1;
}
// All registers that a function keeps, and those of the vector unit, over a loop.
__attribute__((noinline)) static void registers(void) {
	long bad;
	__asm__ volatile(
		"mov $0x1111,%%rbx\nmov $0x2222,%%r12\nmov $0x3333,%%r13\nmov $0x4444,%%r14\nmov $0x5555,%%r15\n"
		"mov $0x6666,%%r8\nmov $0x7777,%%r9\nmov $0x8888,%%r10\nmov $0x9999,%%r11\nmov $0xaaaa,%%rsi\nmov $0xbbbb,%%rdi\n"
		"movq %%rbx,%%xmm7\nmov $20000,%%ecx\n1: dec %%ecx\njnz 1b\nxor %%eax,%%eax\nmovq %%xmm7,%%rdx\n"
		"cmp $0x1111,%%rdx\njne 2f\ncmp $0x1111,%%rbx\njne 2f\ncmp $0x2222,%%r12\njne 2f\ncmp $0x3333,%%r13\njne 2f\n"
		"cmp $0x4444,%%r14\njne 2f\ncmp $0x5555,%%r15\njne 2f\ncmp $0x6666,%%r8\njne 2f\ncmp $0x7777,%%r9\njne 2f\n"
		"cmp $0x8888,%%r10\njne 2f\ncmp $0x9999,%%r11\njne 2f\ncmp $0xaaaa,%%rsi\njne 2f\ncmp $0xbbbb,%%rdi\nje 3f\n"
		"2: mov $1,%%eax\n3:\n"
		: "=a"(bad)::"rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm7", "cc");
	if (bad) wrong("registers");
}
static void *computes(void *unused) {
	for (;; turns[0]++) {
		registers();
		if (work(work(turns[0])) != 9 * turns[0] + 4) wrong("work");
	}
	return unused;
}
static void *faults(void *unused) {
	for (;; turns[1]++) {
		mprotect(page, 4096, PROT_READ);
		touch(page);
	}
	return unused;
}
static void *waits(void *unused) {
	int set = epoll_create1(0);
	for (;; turns[2]++) {
		struct epoll_event event;
		struct timespec time = {0, 1000000};
		// Refit may be killed before it knows that it has ended a call.
		if (epoll_wait(set, &event, 1, 1) < 0 && errno != EINTR) wrong("epoll_wait");
		if (nanosleep(&time, 0)) wrong("nanosleep");
	}
	return unused;
}
static void *writes(void *unused) {
	static char bytes[1 << 18];
	int ends[2];
	if (pipe(ends)) wrong("pipe");
	if (!fork()) {
		close(ends[1]);
		for (size_t next = 0;;) {
			unsigned char part[4096];
			ssize_t read_ = read(ends[0], part, sizeof part);
			if (read_ <= 0) _exit(0);
			for (ssize_t at = 0; at < read_; at++, next++)
				if (part[at] != (unsigned char)(next % 251)) kill(getppid(), SIGABRT), _exit(1);
			usleep(100);
		}
	}
	close(ends[0]);
	for (size_t next = 0;; turns[3]++) {
		for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (char)((next + at) % 251);
		ssize_t done = write(ends[1], bytes, sizeof bytes);
		// A part is all that is promised if refit is killed.
		if (done <= 0) wrong("write");
		next += (size_t)done;
	}
	return unused;
}

// Some of it is evicted where the memory is limited.
static volatile char much[4 << 20];
int main(void) {
	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	void *(*all[])(void *) = {computes, faults, waits, writes};
	page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &fault, 0);
	sigaction(SIGALRM, &tick, 0);
	for (int i = 0; i < 4; i++) {
		pthread_t thread;
		pthread_create(&thread, 0, all[i], 0);
	}
	for (size_t at = 0; at < sizeof much; at += 64) much[at] = (char)(at >> 6);
	puts("begun");
	fflush(stdout);
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		// All are still at work.
		for (int i = 0; i < 4; i++) {
			long before = turns[i];
			while (turns[i] == before) usleep(100);
		}
		for (size_t at = 0; at < sizeof much; at += 64)
			if (much[at] != (char)(at >> 6)) wrong("memory");
		puts("right");
		fflush(stdout);
	}
	return 0;
}
