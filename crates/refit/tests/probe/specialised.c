// A program that calls functions with usual and unusual arguments all the time, and checks the results.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, noipa))

static volatile long turns[3];
static void wrong(const char *what) {
	fprintf(stderr, "wrong: %s\n", what);
	_exit(3);
}
// The number of rounds is known for a known power, and so is every branch.
APART unsigned long power(unsigned long x, unsigned n) {
	unsigned long result = 1;
	for (; n; n >>= 1, x *= x)
		if (n & 1) result *= x;
	return result;
}
// It calls another function, and needs the argument after that.
APART long mixed(long x, long kind) {
	long sum = 0;
	for (long i = 0; i < 40; i++) {
		if (kind == 7) sum += (long)power((unsigned long)(x + i), 13);
		else if (kind > 100) sum -= i * kind;
		else sum ^= (long)power((unsigned long)i, (unsigned)kind);
	}
	return sum + kind;
}
static unsigned long expected(unsigned long x, unsigned n) {
	unsigned long result = 1;
	while (n--) result *= x;
	return result;
}
static void *powers(void *unused) {
	for (unsigned long x = 0;; turns[0]++, x++) {
		for (int i = 0; i < 30; i++)
			if (power(x + (unsigned long)i, 13) != expected(x + (unsigned long)i, 13)) wrong("power");
		if (power(x, (unsigned)(x % 20)) != expected(x, (unsigned)(x % 20))) wrong("another power");
	}
	return unused;
}
static void *mixes(void *unused) {
	for (long x = 0;; turns[1]++, x++) {
		long kind = x % 50 ? 7 : x % 200, sum = 0;
		for (long i = 0; i < 40; i++) {
			if (kind == 7) sum += (long)expected((unsigned long)(x + i), 13);
			else if (kind > 100) sum -= i * kind;
			else sum ^= (long)expected((unsigned long)i, (unsigned)kind);
		}
		if (mixed(x, kind) != sum + kind) wrong("mixed");
	}
	return unused;
}
// All values are as frequent.
APART long even(long x, long any) { return any & 1 ? x * any : x - any; }
static void *evens(void *unused) {
	for (long x = 0;; turns[2]++, x++)
		if (even(x, x % 64) != (x & 1 ? x * (x % 64) : x - x % 64)) wrong("even");
	return unused;
}
int main(void) {
	void *(*all[])(void *) = {powers, mixes, evens};
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		pthread_create(&thread, 0, all[i], 0);
	}
	puts("begun");
	fflush(stdout);
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		for (int i = 0; i < 3; i++) {
			long before = turns[i];
			while (turns[i] == before) usleep(100);
		}
		puts("right");
		fflush(stdout);
	}
	return 0;
}
