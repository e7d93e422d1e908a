// A program whose threads call `work` at the same time.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 6 };
static volatile int stop;

__attribute__((noinline)) void work(void) {
	__asm__ volatile("nop\nnop\nnop\nnop\nnop" ::: "memory");
}
static void *counted(void *times) {
	for (long i = 0; i < (long)times; i++) work();
	return 0;
}
static void *endless(void *unused) {
	while (!stop) work();
	return unused;
}
// Calls it in a thread that the kernel does not know to have sequences; 0 if that cannot be had.
static void *unknown(void *times) {
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
	long length = 32;
	while (syscall(SYS_rseq, area, length, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) && length < 1024) length++;
	for (long i = 0; i < (long)times; i++) work();
	return (void *)(length < 1024 ? (long)times : 0);
}
static long all(void *(*does)(void *), long times, int count) {
	pthread_t threads[THREADS];
	void *result = 0;
	for (int i = 0; i < count; i++) pthread_create(&threads[i], 0, does, (void *)times);
	for (int i = 0; i < count; i++) pthread_join(threads[i], &result);
	return (long)result;
}
static void *runs(void *unused) {
	all(endless, 0, THREADS);
	return unused;
}

int main(void) {
	char line[64];
	long times;
	pthread_t thread;
	printf("work %p\n", (void *)work);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "count %ld", &times) == 1) {
			all(counted, times, THREADS);
			printf("%ld\n", times * THREADS);
		} else if (sscanf(line, "unknown %ld", &times) == 1) {
			printf("%ld\n", all(unknown, times, 1));
		} else if (!strcmp(line, "once\n")) {
			work();
			puts("1");
		} else if (!strcmp(line, "begin\n")) {
			pthread_create(&thread, 0, runs, 0);
			puts("begun");
		} else if (!strcmp(line, "end\n")) {
			stop = 1;
			pthread_join(thread, 0);
			puts("ended");
		}
		fflush(stdout);
	}
	return 0;
}
