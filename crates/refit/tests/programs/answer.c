// Answers line by line; threads and signals have their part in it.

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t signals;
static jmp_buf back;

static void handler(int number) {
	(void)number;
	signals++;
}

static int ascending(const void *one, const void *other) {
	long a = *(const long *)one, b = *(const long *)other;
	return (a > b) - (a < b);
}

static void *sum(void *data) {
	long *numbers = data, all = 0;
	for (int i = 0; i < 1000; i++) all = all * 31 + numbers[i % 100];
	numbers[100] = all;
	return 0;
}

int main(void) {
	char line[256], text[1024];
	signal(SIGUSR1, handler);
	while (fgets(line, sizeof line, stdin)) {
		long number = strtol(line, 0, 10), first[101], second[101];
		unsigned long state = (unsigned long)number;
		for (int i = 0; i < 100; i++) {
			state = state * 6364136223846793005 + 1442695040888963407;
			first[i] = second[i] = (long)(state >> 40);
		}
		qsort(first, 100, sizeof *first, ascending);
		pthread_t one, other;
		pthread_create(&one, 0, sum, first);
		pthread_create(&other, 0, sum, second);
		pthread_join(one, 0);
		pthread_join(other, 0);
		signals = 0;
		raise(SIGUSR1);
		int jumped = setjmp(back);
		if (jumped < 3) longjmp(back, jumped + 1);
		snprintf(text, sizeof text, "%ld %ld %.6f %d %d", first[100], second[50], (double)number / 7, (int)signals, jumped);
		puts(text);
		fflush(stdout);
	}
}
