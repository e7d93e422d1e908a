// A program whose thread polls all the time; from the line "wait" to the line "wake" it waits in one call of poll, which has a time limit.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int ends[2];
static volatile int limit;
static volatile long turns;

__attribute__((noipa)) static int polls(void) {
	struct pollfd one = {.fd = ends[0], .events = POLLIN};
	return poll(&one, 1, limit);
}
static void *works(void *unused) {
	char byte;
	for (;; turns++)
		if (polls() == 1 && read(ends[0], &byte, 1) != 1) _exit(3);
	return unused;
}
int main(void) {
	pthread_t thread;
	char line[16];
	if (pipe(ends) || pthread_create(&thread, 0, works, 0)) return 1;
	puts("begun");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "wait\n")) {
			limit = 60000;
		} else {
			long before = turns;
			limit = 0;
			if (!strcmp(line, "wake\n") && write(ends[1], "", 1) != 1) return 1;
			while (turns < before + 2) usleep(100);
		}
		puts("right");
		fflush(stdout);
	}
	return 0;
}
