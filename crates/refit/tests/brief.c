// Creates threads that wait for a moment and end, for stacks.rs. Then it renames itself, and does so
// again.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static void *doze(void *unused)
{
	struct timespec time = { 0, 1000 };
	nanosleep(&time, NULL);
	return unused;
}

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 20;

	for (int named = 0; named < 2; named++) {
		for (int round = 0; round < rounds; round++) {
			pthread_t thread;
			pthread_create(&thread, NULL, doze, NULL);
			pthread_join(thread, NULL);
		}
		prctl(PR_SET_NAME, "renamed");
	}
	return 0;
}
