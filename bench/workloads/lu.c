// LU decomposition as in Rodinia (Che et al., IISWC 2009): in place, without pivoting, by blocks of 16 × 16, of the matrix that Rodinia makes,
// in which elements become smaller away from the diagonal. Verified by multiplying back.
//
// Rows of blocks are dealt out in turn, and are written by their owner alone, also where Rodinia has several threads at the row of the pivot:
// that is little work, and a page that is written by one only need not travel.

#include "workload.h"

#include <float.h>
#include <math.h>

// Columns that are worked on at a time, so that what is read of other rows stays in the first cache.
enum { BLOCK = 16, TILE = 256, SMALLEST = BLOCK, LARGEST = 16384 };

// Element (i, j) before.
static double original(int i, int j) {
	return 10 * exp(-0.001 * abs(i - j));
}

struct matrix {
	int n;
	float *at;
};

static float *row(struct matrix m, int i) {
	return m.at + (size_t)i * (size_t)m.n;
}

static int is_own(int block) {
	return block % omp_get_num_threads() == omp_get_thread_num();
}

static void prepare(struct matrix m) {
#pragma omp parallel
	for (int block = 0; block < m.n / BLOCK; block++)
		for (int i = block * BLOCK; is_own(block) && i < (block + 1) * BLOCK; i++)
			for (int j = 0; j < m.n; j++) row(m, i)[j] = (float)original(i, j);
}

// The rows of the pivot: each less those above it, in its block's columns and right of them.
static void factor(struct matrix m, int from) {
	for (int k = from; k < from + BLOCK; k++)
		for (int i = k + 1; i < from + BLOCK; i++) {
			const float *pivot = row(m, k);
			float *own = row(m, i), factor = own[k] /= pivot[k];
			for (int j = k + 1; j < m.n; j++) own[j] -= factor * pivot[j];
		}
}

// What the factors of a row of blocks are that take its columns below the pivot away.
static void divide(struct matrix m, int from, int block) {
	for (int i = block; i < block + BLOCK; i++) {
		float *own = row(m, i);
		for (int k = from; k < from + BLOCK; k++) {
			float factor = own[k] /= row(m, k)[k];
			for (int j = k + 1; j < from + BLOCK; j++) own[j] -= factor * row(m, k)[j];
		}
	}
}

// Takes them away to the right.
static void subtract(struct matrix m, int from, int block) {
	for (int tile = from + BLOCK; tile < m.n; tile += TILE) {
		int end = tile + TILE < m.n ? tile + TILE : m.n;
		for (int i = block; i < block + BLOCK; i++) {
			float *restrict own = row(m, i);
			for (int k = from; k < from + BLOCK; k += 4) {
				const float *a = row(m, k), *b = row(m, k + 1), *c = row(m, k + 2), *d = row(m, k + 3);
				float fa = own[k], fb = own[k + 1], fc = own[k + 2], fd = own[k + 3];
				for (int j = tile; j < end; j++) own[j] -= fa * a[j] + fb * b[j] + fc * c[j] + fd * d[j];
			}
		}
	}
}

// One barrier a step is enough: the next pivot's rows are written by their owner, who has done them in this step by then, while others only read
// those of this step.
static void decompose(struct matrix m) {
#pragma omp parallel
	for (int from = 0; from < m.n; from += BLOCK) {
		if (is_own(from / BLOCK)) factor(m, from);
#pragma omp barrier
		for (int block = from + BLOCK; block < m.n; block += BLOCK)
			if (is_own(block / BLOCK)) {
				divide(m, from, block);
				subtract(m, from, block);
			}
	}
}

// Whether the product is what there was, as far as this precision goes: n roundings of half a unit in the last place.
static int right(struct matrix m) {
	double worst = 0, allowed = m.n * (double)FLT_EPSILON / 2 * original(0, 0);
	int number = 1;
#pragma omp parallel reduction(max : worst) reduction(& : number)
	{
		double *sum = allocate((size_t)m.n, sizeof *sum);
#pragma omp for schedule(static, 1)
		for (int i = 0; i < m.n; i++) {
			for (int j = 0; j < m.n; j++) sum[j] = -original(i, j);
			for (int k = 0; k <= i; k++) {
				const float *upper = row(m, k);
				double lower = k < i ? (double)row(m, i)[k] : 1;
				for (int j = k; j < m.n; j++) sum[j] += lower * (double)upper[j];
			}
			for (int j = 0; j < m.n; j++) {
				worst = fmax(worst, fabs(sum[j]));
				number &= !isnan(sum[j]);
			}
		}
		free(sum);
	}
	return number && worst <= allowed;
}

int main(int argc, char **argv) {
	const char *expected = "SIZE, a multiple of 16 up to 16384", *name = begin(argc, argv, "256", expected);
	long size = number(name, SMALLEST, LARGEST);
	if (size < 0 || size % BLOCK) refuse(argv[0], "there is no such size", expected);
	struct matrix m = {(int)size, allocate((size_t)size * (size_t)size, sizeof(float))};
	prepare(m);
	double began = seconds();
	decompose(m);
	double took = seconds() - began;
	int verified = right(m);
	free(m.at);
	return finish("lu", name, m.n / BLOCK, took, verified);
}
