// Calls that exceptions leave. "NAME N" makes N calls, of which every second one throws, and answers
// with the number of those that returned.
#include <stdio.h>
#include <string.h>

#define APART extern "C" __attribute__((noinline, noclone, noipa))
static volatile long sink, destroyed;
struct Guard { ~Guard() { destroyed = destroyed + 1; } };

APART long t_throws(long n) {
	if (n & 1) throw n;
	return n;
}
// Has nothing to clean up: the unwinder passes its frame.
APART long t_passed(long n) {
	long got = t_throws(n);
	sink = sink + got;
	return got + 1;
}
APART long t_cleans(long n) {
	Guard guard;
	long got = t_passed(n);
	sink = sink + got;
	return got + 2;
}
// Returns for `t_jumps`.
APART long t_jumps(long n) {
	sink = sink + 1;
	return t_cleans(n);
}
// A cleanup within a handler of the same function.
APART long t_catches(long n) {
	try {
		Guard guard;
		return t_jumps(n) + sink * 0;
	} catch (long) {
		return -1;
	}
}
// Throws on.
APART long t_again(long n) {
	try {
		return t_cleans(n) + sink * 0;
	} catch (long) {
		sink = sink + 2;
		throw;
	}
}

int main() {
	char line[100], name[20];
	long times;
	printf("work %p\n", (void *)t_throws);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "%19s %ld", name, &times) < 2) return 1;
		long returned = 0;
		for (long n = 0; n < times; n++) {
			try {
				long got = !strcmp(name, "again") ? t_again(n) : t_catches(n);
				returned += got >= 0;
			} catch (long) {
			}
		}
		printf("%ld\n", returned);
		fflush(stdout);
	}
}
