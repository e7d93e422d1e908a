// A program that calls functions in many ways and often, and counts the calls itself. It begins at the first line, and ends its calls at the line "end".
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEAF, NODE, JUMPS, POINTED, SELDOM, WRAPS, KINDS };
static volatile int ending;
static volatile long counts[3][KINDS], turns[2];
// The return address of the function that calls all others.
static _Thread_local void *volatile outermost;

static void wrong(const char *what) {
	fprintf(stderr, "wrong: %s\n", what);
	_exit(3);
}
long leaf(long);
__attribute__((noipa)) long leaf(long x) {
	__asm__ volatile("" : "+r"(x)::"memory");
	return x < 0 ? -x : 3 * x + 1;
}
__attribute__((noipa)) static long node(long x, volatile long *count) {
	if (x <= 0) return 1;
	count[NODE] += 2, count[LEAF]++;
	return node(x - 1, count) + node(x - 2, count) + leaf(0);
}
__attribute__((noipa)) static long jumps(long x) {
	__asm__ volatile("" : "+r"(x)::"memory");
	return leaf(x + 1);
}
// Calls only if it has to, and in the bytes that a jump at its entry would take.
__attribute__((noipa)) static long seldom(long x) {
	__asm__ volatile("" : "+r"(x)::"memory");
	if (x & 15) return x + 9;
	return leaf(x) + 1;
}
__attribute__((naked, noipa)) static long wraps(__attribute__((unused)) long x) {
	__asm__("push %rax\n .cfi_adjust_cfa_offset 8\n call leaf\n pop %rdx\n .cfi_adjust_cfa_offset -8\n ret");
}
__attribute__((noipa)) static long pointed(long x) {
	__asm__ volatile("" : "+r"(x)::"memory");
	return x ^ 5;
}
static long (*volatile pointer)(long) = pointed;
static void on_tick(int signal) {
	void *frames[64];
	(void)signal;
	// One thread is interrupted at a time, and only it has the signal's count.
	counts[2][LEAF]++;
	if (leaf(-7) != 7) wrong("a call of a handler");
	if (!outermost) return;
	int found = 0, length = backtrace(frames, 64);
	for (int i = 0; i < length; i++) found |= frames[i] == outermost;
	if (!found) wrong("a stack");
}
__attribute__((noipa)) static void calls(int number) {
	volatile long *count = counts[number];
	outermost = __builtin_return_address(0);
	for (long x = 1; !ending; x++, turns[number]++) {
		count[LEAF]++, count[JUMPS]++, count[NODE]++, count[POINTED]++;
		count[LEAF]++, count[SELDOM]++, count[WRAPS]++, count[LEAF] += 1 + !(x & 15);
		if (seldom(x) != (x & 15 ? x + 9 : 3 * x + 2)) wrong("seldom");
		if (wraps(x) != 3 * x + 1) wrong("wraps");
		if (leaf(x) != 3 * x + 1) wrong("leaf");
		if (jumps(x) != 3 * x + 4) wrong("jumps");
		if (node(5, count) != 25) wrong("node");
		if (pointer(x) != (x ^ 5)) wrong("pointed");
	}
	outermost = 0;
}
static void *begins(void *number) {
	sigset_t tick;
	sigemptyset(&tick);
	sigaddset(&tick, SIGWINCH);
	if (number == (void *)1) pthread_sigmask(SIG_UNBLOCK, &tick, 0);
	calls((int)(long)number);
	__asm__ volatile("" ::: "memory");
	return 0;
}
int main(void) {
	struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	// No signal by whose handlers programs switch contexts.
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGWINCH};
	struct itimerspec often = {{0, 1000000}, {0, 1000000}};
	timer_t timer;
	pthread_t threads[2];
	sigset_t blocked;
	void *frame;
	// Loads the unwinder.
	backtrace(&frame, 1);
	sigaction(SIGWINCH, &tick, 0);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGWINCH);
	pthread_sigmask(SIG_BLOCK, &blocked, 0);
	puts("begun");
	fflush(stdout);
	char line[16];
	if (!fgets(line, sizeof line, stdin)) return 1;
	for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, begins, (void *)i);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, 0)) return 1;
	puts("right");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "end\n")) break;
		for (int i = 0; i < 2; i++) {
			long before = turns[i];
			while (turns[i] == before) usleep(100);
		}
		puts("right");
		fflush(stdout);
	}
	timer_delete(timer);
	ending = 1;
	for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
	const char *names[] = {"leaf", "node", "jumps", "pointed", "seldom", "wraps"};
	for (int kind = 0; kind < KINDS; kind++)
		printf("%s=%ld%c", names[kind], counts[0][kind] + counts[1][kind] + counts[2][kind], kind == KINDS - 1 ? '\n' : ' ');
	fflush(stdout);
	return !fgets(line, sizeof line, stdin);
}
