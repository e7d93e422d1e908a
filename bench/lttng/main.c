/*
 * Says what an event of LTTng-UST costs, in ns: one line per line that it reads, so that contenders take turns.
 * Argument: events of a round.
 */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "provider.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments)
{
	long events = count > 1 ? atol(arguments[1]) : 100000, n;
	int c;
	while ((c = getchar()) != EOF) {
		double began;
		if (c != '\n')
			continue;
		began = now();
		for (n = 0; n < events; n++)
			lttng_ust_tracepoint(refit_bench, event, n, n);
		printf("%f\n", (now() - began) / events);
		fflush(stdout);
	}
	return 0;
}
