// Calls a function, t_leaf, by ways that unwinders find difficult. It obeys commands, one per line,
// and answers with the return addresses that backtrace() finds, the innermost first.
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
enum { MOST = 400 };
static void *found[MOST];
static int depth, quiet;
static volatile long sink, calls;

APART void t_leaf(void) {
	if (!quiet) depth = backtrace(found, MOST);
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
}
APART void t_down(long more) {
	if (more > 0) t_down(more - 1); else t_leaf();
	sink++;
}
// Aligns its stack further than callers do, with variables of unknown size: the address of the
// caller's frame is in memory only.
APART void t_aligned(long bytes) {
	char room[bytes + 1];
	_Alignas(64) volatile char mine[64];
	memset(room, 1, sizeof room);
	mine[bytes % 64] = room[bytes];
	t_down(2);
	sink += mine[3] + room[0];
}
APART void t_large(void) {
	volatile char room[200000];
	room[0] = room[199999] = 1;
	t_aligned(40);
	sink += room[100000];
}
static int compare(const void *one, const void *other) {
	if (!sink++) t_aligned(7);
	return *(const int *)one - *(const int *)other;
}
APART void t_sort(void) {
	int numbers[2] = {2, 1};
	sink = 0;
	qsort(numbers, 2, sizeof *numbers, compare);
	sink++;
}
static void handle(int signal) {
	t_down(1);
	sink++;
}
APART void t_signal(void) {
	raise(SIGUSR1);
	sink++;
}
static void *thread(void *unused) { t_aligned(100); return unused; }
static void *busy(void *times) {
	for (long i = 0; i < (long)times; i++) i % 2 ? t_aligned(i % 50) : t_down(i % 30);
	return 0;
}

static void two(void *(*first)(void *), void *(*second)(void *), void *argument) {
	pthread_t threads[2];
	pthread_create(&threads[0], 0, first, argument);
	if (second) pthread_create(&threads[1], 0, second, argument);
	pthread_join(threads[0], 0);
	if (second) pthread_join(threads[1], 0);
}

int main(void) {
	char line[100], what[100];
	long times;
	static char alternative[1 << 16];
	stack_t stack = {.ss_sp = alternative, .ss_size = sizeof alternative};
	sigaltstack(&stack, 0);
	struct sigaction action = {.sa_handler = handle};
	backtrace(found, 1);
	printf("work %p\n", (void *)t_leaf);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "%99s %ld", what, &times) != 2) continue;
		action.sa_flags = strcmp(what, "elsewhere") ? 0 : SA_ONSTACK;
		sigaction(SIGUSR1, &action, 0);
		sigaction(SIGALRM, &action, 0);
		depth = calls = 0;
		if (!strcmp(what, "down")) t_down(times);
		if (!strcmp(what, "aligned")) t_large();
		if (!strcmp(what, "sort")) t_sort();
		if (!strcmp(what, "signal") || !strcmp(what, "elsewhere")) t_signal();
		if (!strcmp(what, "thread")) two(thread, 0, 0);
		if (!strcmp(what, "busy")) {
			struct itimerval often = {{0, 500}, {0, 500}}, never = {{0}};
			quiet = 1;
			setitimer(ITIMER_REAL, &often, 0);
			two(busy, busy, (void *)times);
			setitimer(ITIMER_REAL, &never, 0);
			quiet = 0;
		}
		printf("%ld", calls);
		for (int i = 1; i < depth; i++) printf(" %lx", (long)found[i]);
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
