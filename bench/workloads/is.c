// Integer sort of the NAS Parallel Benchmarks, by their specification (RNR-94-007, section 2.3.6): ranks of keys, ten times.
//
// Each thread counts its keys by value in a table of its own; then each adds up, over all tables, the values that are its share, and learns
// how many keys are before them. The keys are sorted once, at the end, by the ranks of the last time, to see whether these are right.

#include "workload.h"

enum { ITERATIONS = 10, TESTS = 5 };

// Of S, W and A: keys and values as powers of two; keys of which the rank is known. Those of the first `rising` have one that grows with the iteration,
// the others' becomes smaller, from where `up` and `down` say.
struct class {
	int keys, values, index[TESTS], rank[TESTS], rising, up, down;
};
static const struct class CLASSES[] = {
	{16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, 3, 0, 0},
	{20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}, 2, -2, 0},
	{23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}, 3, -1, -1},
};

// `ranks[v]`: keys that are not above `v`. `counts` and `sums` are of each thread.
struct sort {
	size_t keys, values;
	int *key, *ranks, **counts, *sums;
};

static void prepare(struct sort *s) {
	int threads = omp_get_max_threads();
	s->key = allocate(s->keys, sizeof *s->key);
	s->ranks = allocate(s->values, sizeof *s->ranks);
	s->counts = allocate((size_t)threads, sizeof *s->counts);
	s->sums = allocate((size_t)threads, sizeof *s->sums);
#pragma omp parallel
	{
		struct range keys = share(s->keys), values = share(s->values);
		uint64_t state = skip(SEED, 4 * keys.from);
		for (size_t i = keys.from; i < keys.to; i++) {
			double sum = draw(&state);
			for (int more = 0; more < 3; more++) sum += draw(&state);
			s->key[i] = (int)(sum * (double)(s->values / 4));
		}
		for (size_t v = values.from; v < values.to; v++) s->ranks[v] = 0;
		s->counts[omp_get_thread_num()] = allocate(s->values, sizeof **s->counts);
	}
}

static void rank(struct sort *s, int iteration) {
	s->key[iteration] = iteration;
	s->key[iteration + ITERATIONS] = (int)s->values - iteration;
#pragma omp parallel
	{
		int thread = omp_get_thread_num(), threads = omp_get_num_threads(), *own = s->counts[thread], sum = 0;
		struct range keys = share(s->keys), values = share(s->values);
		memset(own, 0, s->values * sizeof *own);
		for (size_t i = keys.from; i < keys.to; i++) own[s->key[i]]++;
#pragma omp barrier
		for (size_t v = values.from; v < values.to; v++) {
			for (int t = 0; t < threads; t++) sum += s->counts[t][v];
			s->ranks[v] = sum;
		}
		s->sums[thread] = sum;
#pragma omp barrier
		sum = 0;
		for (int t = 0; t < thread; t++) sum += s->sums[t];
		for (size_t v = values.from; v < values.to; v++) s->ranks[v] += sum;
	}
}

// Whether the known ranks are as they should be; a rank is how many keys are below.
static int partly_right(const struct sort *s, const struct class *class, int iteration) {
	for (int i = 0; i < TESTS; i++) {
		int moved = i < class->rising ? iteration + class->up : -(iteration + class->down);
		int key = s->key[class->index[i]];
		if (key < 1 || s->ranks[key - 1] != class->rank[i] + moved) return 0;
	}
	return 1;
}

// Whether the ranks put each key into a place of its own, and the keys in order.
static int right(const struct sort *s) {
	int *next = allocate(s->values, sizeof *next), *sorted = allocate(s->keys, sizeof *sorted), is = 1;
	memcpy(next, s->ranks, s->values * sizeof *next);
	memset(sorted, -1, s->keys * sizeof *sorted);
	for (size_t i = 0; i < s->keys && is; i++) {
		int place = --next[s->key[i]];
		is = place >= 0 && (size_t)place < s->keys && sorted[place] < 0;
		if (is) sorted[place] = s->key[i];
	}
	for (size_t i = 1; i < s->keys && is; i++) is = sorted[i - 1] <= sorted[i];
	free(next);
	free(sorted);
	return is;
}

static void release(struct sort *s, int threads) {
	for (int t = 0; t < threads; t++) free(s->counts[t]);
	free(s->counts);
	free(s->sums);
	free(s->ranks);
	free(s->key);
}

int main(int argc, char **argv) {
	const char *name = begin(argc, argv, "S", NPB_CLASSES);
	const struct class *class = &CLASSES[npb_class(argv[0], name)];
	int threads = omp_get_max_threads(), verified = 1;
	struct sort s = {.keys = (size_t)1 << class->keys, .values = (size_t)1 << class->values};
	prepare(&s);
	rank(&s, 1);
	double began = seconds();
	for (int iteration = 1; iteration <= ITERATIONS; iteration++) {
		rank(&s, iteration);
		verified &= partly_right(&s, class, iteration);
	}
	double took = seconds() - began;
	verified &= right(&s);
	release(&s, threads);
	return finish("is", name, ITERATIONS, took, verified);
}
