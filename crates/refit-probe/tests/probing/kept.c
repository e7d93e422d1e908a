// Calls functions with numbers, pointers and keys, in threads and in signal handlers. It obeys
// commands, one per line, and answers with numbers of calls.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
static volatile long sink, calls;

APART long t_pair(long left, long right) {
	calls++;
	sink += right;
	return left ^ right;
}
APART long t_read(const long *place, long which) {
	calls++;
	sink += which;
	return place != 0;
}
APART long t_text(const char *text) {
	calls++;
	return sink += text != 0;
}
APART long t_put(long key, long value) {
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
	sink += value;
	return key;
}
APART long t_get(long key, long value) {
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
	sink += value;
	return key;
}
APART long t_nap(long micros) {
	calls++;
	if (micros < 1000000) usleep(micros);
	return micros;
}

static void handle(int signal) {
	t_put(signal, 1);
}
static void often(long micros) {
	struct itimerval every = {{0, micros}, {0, micros}};
	setitimer(ITIMER_REAL, &every, 0);
}
static void *add(void *times) {
	for (long i = 0; i < (long)times; i++) t_put(i % 7, i);
	return 0;
}

// The entry of 4096 at which the search of a key begins.
static long home(long key) {
	return ((unsigned long)(key + 1) * 0x5bd1e995) >> 20 & 4095;
}
// Each key belongs to one thread, which stores, reads and deletes its value. The keys of different
// threads are searched in the same entries, from others on, or all from the same ones on.
static int together;
static void *own(void *which) {
	long key = (long)which << 40, number = 0;
	while (number < 20000) {
		if (home(++key) / 2 != (together ? 0 : (long)which)) continue;
		number++;
		t_put(key, number);
		t_get(key, number);
		t_put(key, -number);
		t_get(key, -number);
		t_put(key, 0);
		// While others put their keys in the place of this one.
		for (int i = 0; i < 8; i++) t_get(key, 0);
	}
	return 0;
}
// Two threads add to the same new key at once, while a third one makes room for it in one entry or
// another. Its keys are searched from the next entry on.
enum { ROUNDS = 20000, FULL = 16 };
static long keys[ROUNDS + FULL], room[5];
static volatile long there, over;
static void meet(void) {
	long goal = (__atomic_fetch_add(&there, 1, __ATOMIC_SEQ_CST) | 1) + 1;
	while (there < goal) sched_yield();
}
static void *same(void *which) {
	for (long i = FULL; i < ROUNDS + FULL && (long)which < 2; i++) {
		meet();
		t_put(keys[i], 1);
		meet();
		if (which) continue;
		t_get(keys[i], 2);
		t_nap(keys[i]);
	}
	if ((long)which < 2) over = 1;
	while (!over)
		for (long i = 1; i < 5; i++) t_put(room[i], 1), t_nap(room[i]);
	return 0;
}
// All threads store and delete the value of the same key.
static void *shared(void *which) {
	for (long i = 0; i < 100000; i++) t_put(7, i % 3 ? (long)which + 1 : 0);
	return 0;
}

static void in_threads(void *(*work)(void *), long count, int numbers, void *argument) {
	pthread_t threads[4];
	for (long i = 0; i < count; i++)
		pthread_create(&threads[i], 0, work, numbers ? (void *)i : argument);
	for (long i = 0; i < count; i++) pthread_join(threads[i], 0);
}

int main(void) {
	char line[100];
	long left, right;
	signal(SIGALRM, handle);
	printf("work %p\n", (void *)t_pair);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		calls = 0;
		if (sscanf(line, "put %ld %ld", &left, &right) == 2) t_put(left, right);
		if (sscanf(line, "pair %ld %ld", &left, &right) == 2) t_pair(left, right);
		if (!strcmp(line, "read\n")) {
			static volatile long there;
			there = 4711;
			t_read((long *)&there, 1);
			t_read((long *)8, 2);
			t_read(0, 3);
			t_read(0, 0);
		}
		if (sscanf(line, "text %ld", &left) == 1) {
			t_text("GET /");
			t_text("GET /index.html");
			t_text("GET ");
			t_text("");
			t_text((char *)left);
		}
		if (sscanf(line, "nap %ld", &left) == 1) t_nap(left);
		if (sscanf(line, "add %ld", &left) == 1) {
			often(500);
			in_threads(add, 2, 0, (void *)left);
			often(0);
		}
		if (sscanf(line, "keys %ld %ld", &left, &right) == 2)
			for (long key = 0; key < left; key++) {
				t_put(key << 4, key + 1);
				if (right) t_put(key << 4, 0);
			}
		if (sscanf(line, "own %d", &together) == 1) in_threads(own, 4, 1, 0);
		if (!strcmp(line, "same\n")) {
			long key = 1L << 40;
			for (long i = 0; i < ROUNDS + FULL; i++) {
				while (home(++key) != 100) {}
				keys[i] = key;
			}
			for (long i = 0; i < 5; i++) {
				while (home(++key) != 101) {}
				room[i] = key;
			}
			// Every entry gets a key, and all but a few keep theirs.
			for (long i = 0; i < FULL; i++) t_put(keys[i], 1);
			t_put(room[0], 1);
			for (long i = 1; i < 7; i++) t_nap(keys[i]);
			there = over = calls = 0;
			in_threads(same, 3, 1, 0);
		}
		if (!strcmp(line, "shared\n")) in_threads(shared, 4, 1, 0);
		printf("%ld\n", calls);
		fflush(stdout);
	}
}
