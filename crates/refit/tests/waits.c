// Waits in several ways, for stacks.rs: after calls of itself, for a lock, and in a child.

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTLINE __attribute__((noinline))
// Keeps the compiler from making a jump of the call before it.
#define STAY asm volatile("" ::: "memory")

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

OUTLINE void doze(void)
{
	struct timespec time = { 0, 2000000 };
	nanosleep(&time, NULL);
	STAY;
}

OUTLINE void deep(int depth)
{
	if (depth)
		deep(depth - 1);
	else
		doze();
	STAY;
}

OUTLINE void take(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	STAY;
}

static void *want(void *unused)
{
	take();
	return unused;
}

OUTLINE void in_child(void)
{
	doze();
	STAY;
}

int main(int count, char **words)
{
	pthread_t thread;
	int rounds = count > 1 ? atoi(words[1]) : 20;

	pthread_mutex_lock(&lock);
	pthread_create(&thread, NULL, want, NULL);
	for (int round = 0; round < rounds; round++)
		deep(10);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	if (fork() == 0) {
		in_child();
		_exit(0);
	}
	wait(NULL);
	return 0;
}
