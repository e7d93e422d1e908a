// A program with constants to be set, which another thread uses all the time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ALONE __attribute__((noinline, noclone))

static volatile int flag;
static volatile long paused[2];
static long field;
int table[256];

// Waits for up to 300 pauses.
ALONE void spins(int number) {
	for (int i = 0; i < 300; i++) {
		__builtin_ia32_pause();
		paused[number]++;
		if (flag) break;
	}
}
ALONE long limited(unsigned long n) {
	if (n > 5000) paused[1]++;
	else paused[1]--;
	return paused[1];
}
ALONE void stores(long *to) { *to = 77777; }
ALONE int bounded(unsigned at) {
	if (at < 120) return table[at];
	return -2;
}
// The number takes one byte.
ALONE long small(unsigned long n) {
	if (n > 50) paused[1]++;
	else paused[1]--;
	return paused[1];
}
static void *endless(void *unused) {
	while (1) spins(0);
	return unused;
}

int main(void) {
	pthread_t thread;
	char line[256];
	if (pthread_create(&thread, NULL, endless, NULL)) return 1;
	printf("begun\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long n = strtol(line + 1, NULL, 10);
		paused[1] = 0;
		switch (*line) {
		case 'l': limited(n); break;
		case 'x': small(n); break;
		case 'b': paused[1] = bounded(n); break;
		case 's': stores(&field); paused[1] = field; break;
		default: spins(1);
		}
		printf("%ld\n", paused[1]);
		fflush(stdout);
	}
	return 0;
}
