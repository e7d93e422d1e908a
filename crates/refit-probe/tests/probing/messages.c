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
static void handle(int signal) { t_say(words[calls % 5], calls, 0); }
static void *busy(void *times) {
	char copy[64];
	for (long i = 0; i < (long)times; i++) {
		// The same texts, at other addresses.
		strcpy(copy, words[i % 5]);
		t_say(i % 2 ? copy : words[i % 5], i, 0);
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
		if (sscanf(line, "busy %ld", &number) == 1) {
			struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
			pthread_t threads[2];
			setitimer(ITIMER_REAL, &often, 0);
			pthread_create(&threads[0], 0, busy, (void *)number);
			pthread_setname_np(threads[0], "first");
			pthread_create(&threads[1], 0, busy, (void *)number);
			pthread_join(threads[0], 0);
			pthread_join(threads[1], 0);
			setitimer(ITIMER_REAL, &never, 0);
		}
		printf("%ld\n", calls);
		fflush(stdout);
	}
}
