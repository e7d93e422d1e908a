// What the workloads share: command line, clock, what they print, how a loop is dealt out, and the numbers of the NAS Parallel Benchmarks.
//
//   PROGRAM [CLASS|SIZE] [--threads N]
//
// prints a line for each of name, class, threads, iterations, time (seconds of the timed part), verified (yes or no). Exit code 0, 1 if the
// result is not verified, 2 for a command line that makes no sense and where memory is short.

#ifndef WORKLOAD_H
#define WORKLOAD_H

#define _POSIX_C_SOURCE 200809L // for clock_gettime

#include <errno.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// A whole number of `text` from `least` to `most`; -1 if it is none.
static inline long number(const char *text, long least, long most) {
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	return errno || end == text || *end || value < least || value > most ? -1 : value;
}

static inline _Noreturn void refuse(const char *program, const char *what, const char *expected) {
	fprintf(stderr, "%s: %s; expected: [%s] [--threads N]\n", program, what, expected);
	exit(2);
}

// Reads the command line and sets the number of threads; the class or size, as it is written.
static inline const char *begin(int argc, char **argv, const char *usual, const char *expected) {
	const char *size = NULL;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--threads")) {
			long threads = ++i < argc ? number(argv[i], 1, 1024) : -1;
			if (threads < 0) refuse(argv[0], "--threads needs a number from 1 to 1024", expected);
			omp_set_num_threads((int)threads);
		} else if (size || argv[i][0] == '-') {
			refuse(argv[0], "an argument too many", expected);
		} else {
			size = argv[i];
		}
	}
	return size ? size : usual;
}

// The place of a class among those that the NAS Parallel Benchmarks have in these sizes.
#define NPB_CLASSES "S|W|A"
static inline int npb_class(const char *program, const char *name) {
	const char *all = "SWA", *found = name[0] && !name[1] ? strchr(all, name[0]) : NULL;
	if (!found) refuse(program, "there is no such class", NPB_CLASSES);
	return (int)(found - all);
}

// Says what has come out; the exit code.
static inline int finish(const char *name, const char *size, int iterations, double seconds, int verified) {
	printf("name %s\nclass %s\nthreads %d\niterations %d\ntime %.6f\nverified %s\n", name, size, omp_get_max_threads(), iterations,
	       seconds, verified ? "yes" : "no");
	return verified && !fflush(stdout) ? 0 : 1;
}

static inline double seconds(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Memory that nobody has touched: whoever writes a page first has it.
static inline void *allocate(size_t count, size_t size) {
	size_t bytes;
	void *memory = __builtin_mul_overflow(count, size, &bytes) ? NULL : malloc(bytes ? bytes : 1);
	if (!memory) {
		fprintf(stderr, "there is no memory for %zu times %zu bytes\n", count, size);
		exit(2);
	}
	return memory;
}

// The part of `0..count` that is this thread's, in whatever loop: so it finds what it has written before. That of a static schedule.
struct range {
	size_t from, to;
};
static inline struct range share(size_t count) {
	size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
	size_t each = count / threads, more = count % threads, from = thread * each + (thread < more ? thread : more);
	return (struct range){from, from + each + (thread < more)};
}

// The generator of the NAS Parallel Benchmarks (RNR-94-007, section 2.2): x' = 5^13 x mod 2^46, as a fraction of 2^46. The
// product may overflow: what is cut off is a multiple of 2^64.
static const uint64_t SEED = 314159265, FACTOR = 1220703125, MASK = (UINT64_C(1) << 46) - 1;
static inline double draw(uint64_t *state) {
	*state = *state * FACTOR & MASK;
	return (double)*state * 0x1p-46;
}

// The state after `count` numbers more.
static inline uint64_t skip(uint64_t state, uint64_t count) {
	for (uint64_t factor = FACTOR; count; count >>= 1, factor = factor * factor & MASK)
		if (count & 1) state = state * factor & MASK;
	return state;
}

#endif
