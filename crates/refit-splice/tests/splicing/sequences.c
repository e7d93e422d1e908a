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
// Returns the number of its calls.
static void *endless(void *unused) {
	long calls = 0;
	for (; !stop; calls++) work();
	(void)unused;
	return (void *)calls;
}
// Calls it in a thread that the kernel does not know to have sequences; 0 if that cannot be had.
static void *unknown(void *times) {
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
	long length = 32;
	while (syscall(SYS_rseq, area, length, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) && length < 1024) length++;
	for (long i = 0; i < (long)times; i++) work();
	return (void *)(length < 1024 ? (long)times : 0);
}

int main(void) {
	char line[64];
	long times;
	pthread_t threads[THREADS];
	void *result;
	printf("work %p\n", (void *)work);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "unknown %ld", &times) == 1) {
			pthread_create(&threads[0], 0, unknown, (void *)times);
			pthread_join(threads[0], &result);
			printf("%ld\n", (long)result);
		} else if (!strcmp(line, "once\n")) {
			work();
			puts("1");
		} else if (!strcmp(line, "begin\n")) {
			for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, endless, 0);
			puts("begun");
		} else if (!strcmp(line, "end\n")) {
			long calls = 0;
			stop = 1;
			for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &result), calls += (long)result;
			printf("%ld\n", calls);
		}
		fflush(stdout);
	}
	return 0;
}
