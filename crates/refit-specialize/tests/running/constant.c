/* A function with calls whose argument is a constant, is one only on some ways, or is none. */
#include <stdio.h>

#define APART __attribute__((noinline, noclone, noipa))

APART long scaled(long x, long n) {
	long sum = x;
	for (long i = 0; i < n; i++) sum = sum * 3 + (n == 5 ? i : -i);
	return sum;
}
APART long by_five(long x) { return scaled(x, 5) ^ 1; }
// Too far away for a short jump.
APART __attribute__((aligned(1024))) long ends_with_five(long x) { return scaled(x + 1, 5); }
APART long by_seven(long x) { return scaled(x, 7) ^ 2; }
APART long by_either(long x) { return scaled(x, x & 1 ? 5 : 6) ^ 3; }
APART long by_any(long x, long n) { return scaled(x, n) ^ 4; }

int main(void) {
	char line[64];
	long n;
	printf("work %p\n", (void *)scaled);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long sum = 0;
		if (sscanf(line, "go %ld", &n) == 1)
			for (long i = 0; i < n; i++)
				sum += by_five(i) - ends_with_five(i) + by_seven(i) - by_either(i) + by_any(i, i % 9) + by_any(i, 5);
		printf("%ld\n", sum);
		fflush(stdout);
	}
}
