// Calls functions with texts: at the ends of pages, at addresses where nothing is, in threads and
// in signal handlers. It obeys commands, one per line, and answers with numbers of calls.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
static volatile long sink, calls;

APART long t_say(const char *text, long number, void *function) {
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
	sink += number;
	return number + (function != 0) + (text != 0);
}
APART const char *t_name(long number) {
	static const char *const names[] = {"zero", "one", "two"};
	sink += number;
	return number < 3 ? names[number] : (const char *)number;
}

// Texts whose last bytes are at the end of a page, or beyond; after the second page is nothing.
static void texts(void) {
	char *pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(pages + 2 * 4096, 4096);
	char *end = pages + 2 * 4096, *middle = pages + 4096;
	memset(pages, 'x', 2 * 4096);
	strcpy(middle - 3, "across");
	t_say(middle - 3, 1, 0);
	strcpy(end - 8, "the end");
	t_say(end - 8, 2, 0);
	t_say(end - 1, 3, 0);
	memcpy(end - 4, "tail", 4);
	t_say(end - 4, 4, 0);
	t_say(end, 5, 0);
	t_say(0, 6, 0);
	t_say((char *)1, 7, 0);
	t_say((char *)0x8000000000000000, 8, 0);
	t_say(pages, 9, 0);
	memset(pages, 'y', 64);
	pages[64] = 0;
	t_say(pages, 10, 0);
	pages[63] = 0;
	t_say(pages, 11, 0);
	t_say("na\xc3\xafve\t\x1b[2J", 12, 0);
	t_say((char *)0xffffffffffffff00, 13, 0);
	munmap(pages, 2 * 4096);
}

static const char *const words[] = {"one", "twenty-two", "three hundred and thirty-three", "", "4"};
static void handle(int signal) {
	long number = calls;
	t_say(words[number % 5], number, 0);
}
static void *busy(void *times);
static void *first(void *times) {
	pthread_setname_np(pthread_self(), "first");
	return busy(times);
}
static void *busy(void *times) {
	char copy[64];
	for (long i = 0; i < (long)times; i++) {
		// The same texts, at other addresses.
		strcpy(copy, words[i % 5]);
		t_say(i % 2 ? copy : words[i % 5], i, 0);
	}
	return 0;
}

// Pairs of numbers whose keys, with a 0 behind them, begin at the same place of a store of 4096.
enum { PAIRS = 1000 };
static long pairs[PAIRS][2];
static unsigned long mixed(unsigned long hash, unsigned long word) {
	hash = (hash ^ word) * 0x9e3779b97f4a7c15;
	return hash << 29 | hash >> 35;
}
static void find_pairs(void) {
	static long other[4096];
	for (long number = 1, found = 0; found < PAIRS; number++) {
		unsigned long place = mixed(mixed(0x9e3779b97f4a7c15, number), 0) >> 52;
		if (other[place]) {
			pairs[found][0] = other[place];
			pairs[found++][1] = number;
		}
		other[place] = other[place] ? 0 : number;
	}
}
// Both threads come to a place at the same time.
static void *meet(void *which) {
	static volatile long there;
	for (long i = 0; i < PAIRS; i++) {
		__atomic_fetch_add(&there, 1, __ATOMIC_SEQ_CST);
		while (there < 2 * i + 2) {}
		t_say("", pairs[i][(long)which], 0);
	}
	return 0;
}

int main(void) {
	char line[100];
	long number;
	signal(SIGALRM, handle);
	printf("work %p\n", (void *)t_say);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		calls = 0;
		if (!strcmp(line, "texts\n")) texts();
		if (sscanf(line, "say %ld", &number) == 1)
			for (long i = 0; i < number; i++) t_say("again", i, (void *)t_name);
		if (sscanf(line, "name %ld", &number) == 1) t_name(number);
		if (!strcmp(line, "fork\n")) {
			pid_t child = fork();
			if (!child) _exit(t_say("child", 1, 0) != 2);
			waitpid(child, 0, 0);
			calls++;
		}
		if (!strcmp(line, "pairs\n")) {
			pthread_t threads[2];
			find_pairs();
			for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, meet, (void *)i);
			for (long i = 0; i < 2; i++) pthread_join(threads[i], 0);
		}
		if (sscanf(line, "busy %ld", &number) == 1) {
			struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
			pthread_t threads[2];
			setitimer(ITIMER_REAL, &often, 0);
			pthread_create(&threads[0], 0, first, (void *)number);
			pthread_create(&threads[1], 0, busy, (void *)number);
			pthread_join(threads[0], 0);
			pthread_join(threads[1], 0);
			setitimer(ITIMER_REAL, &never, 0);
		}
		printf("%ld\n", calls);
		fflush(stdout);
	}
}
