// Conjugate gradient of the NAS Parallel Benchmarks, by their specification (RNR-94-007, section 2.3.4): the smallest eigenvalue of a sparse
// symmetric matrix by inverse power iteration, each step of which is 25 iterations of the conjugate gradient method without preconditioning.
//
// The matrix is the sum of weighted outer products of sparse random vectors. Rows, and what belongs to them, are dealt out to the threads once
// and for all; whoever computes with a row has made it.

#include "workload.h"

#include <math.h>

enum { STEPS = 25 };
static const double CONDITION = 0.1, TOLERANCE = 1e-10;

// S, W and A.
struct class {
	int n, nonzeros, iterations;
	double shift, zeta;
};
static const struct class CLASSES[] = {
	{1400, 7, 15, 10, 8.5971775078648},
	{7000, 8, 15, 12, 10.362595087124},
	{14000, 11, 15, 20, 17.130235054029},
};

// Sparse vectors of up to `width` elements each.
struct vectors {
	int n, width, *length, *place;
	double *value;
};

// Row `r` is `column[i]`, `value[i]` for `first[r] <= i < first[r + 1]`.
struct rows {
	int n, *first, *column;
	double *value;
};

// The numbers of all vectors are one sequence of which some are not used, so one thread draws them.
static struct vectors random_vectors(int n, int nonzeros) {
	int width = nonzeros + 1, range = 1;
	struct vectors v = {n, width, allocate((size_t)n, sizeof(int)), allocate((size_t)n * (size_t)width, sizeof(int)),
	                    allocate((size_t)n * (size_t)width, sizeof(double))};
	int *seen = allocate((size_t)n, sizeof *seen);
	for (int i = 0; i < n; i++) seen[i] = -1;
	while (range < n) range *= 2;
	uint64_t state = SEED;
	draw(&state);
	for (int i = 0; i < n; i++) {
		int length = 0, *place = v.place + (size_t)i * (size_t)width, own = -1;
		double *value = v.value + (size_t)i * (size_t)width;
		while (length < nonzeros) {
			double element = draw(&state);
			int at = (int)(draw(&state) * range);
			if (at >= n || seen[at] == i) continue;
			seen[at] = i;
			if (at == i) own = length;
			place[length] = at;
			value[length++] = element;
		}
		if (own < 0) own = length++;
		place[own] = i;
		value[own] = 0.5;
		v.length[i] = length;
	}
	free(seen);
	return v;
}

// The vectors that have an element in a row, `in.column`, and its value: the transpose of them all.
static struct rows by_row(const struct vectors *v) {
	struct rows in = {v->n, allocate((size_t)v->n + 2, sizeof(int)), NULL, NULL};
	memset(in.first, 0, ((size_t)v->n + 2) * sizeof(int));
	for (int i = 0; i < v->n; i++)
		for (int k = 0; k < v->length[i]; k++) in.first[v->place[(size_t)i * (size_t)v->width + (size_t)k] + 2]++;
	for (int r = 0; r < v->n; r++) in.first[r + 2] += in.first[r + 1];
	in.column = allocate((size_t)in.first[v->n + 1], sizeof(int));
	in.value = allocate((size_t)in.first[v->n + 1], sizeof(double));
	for (int i = 0; i < v->n; i++)
		for (int k = 0; k < v->length[i]; k++) {
			size_t element = (size_t)i * (size_t)v->width + (size_t)k;
			int to = in.first[v->place[element] + 1]++;
			in.column[to] = i;
			in.value[to] = v->value[element];
		}
	return in;
}

// Elements of a row of the matrix: how many there are, and, if `m` has a place for them, what they are. `at[c]` is where column `c` is; if
// that is below `from`, it is of a row before.
static int row(const struct vectors *v, const struct rows *in, int r, int *at, int from, const struct rows *m) {
	int to = from;
	for (int i = in->first[r]; i < in->first[r + 1]; i++) {
		int vector = in->column[i];
		double weight = in->value[i] * pow(CONDITION, (double)vector / v->n);
		for (int k = 0; k < v->length[vector]; k++) {
			size_t element = (size_t)vector * (size_t)v->width + (size_t)k;
			int c = v->place[element];
			if (at[c] < from) {
				at[c] = to++;
				if (m) m->column[at[c]] = c, m->value[at[c]] = 0;
			}
			if (m) m->value[at[c]] += weight * v->value[element];
		}
	}
	return to - from;
}

static struct rows matrix(int n, int nonzeros, double shift) {
	struct vectors v = random_vectors(n, nonzeros);
	struct rows in = by_row(&v), m = {n, allocate((size_t)n + 1, sizeof(int)), NULL, NULL};
#pragma omp parallel
	{
		struct range own = share((size_t)n);
		int *at = allocate((size_t)n, sizeof *at), from = 0;
		for (int c = 0; c < n; c++) at[c] = -1;
		for (size_t r = own.from; r < own.to; r++) {
			int length = row(&v, &in, (int)r, at, from, NULL);
			m.first[r + 1] = length;
			from += length;
		}
#pragma omp barrier
#pragma omp single
		{
			m.first[0] = 0;
			for (int r = 0; r < n; r++) m.first[r + 1] += m.first[r];
			m.column = allocate((size_t)m.first[n], sizeof(int));
			m.value = allocate((size_t)m.first[n], sizeof(double));
		}
		for (int c = 0; c < n; c++) at[c] = -1;
		for (size_t r = own.from; r < own.to; r++) {
			row(&v, &in, (int)r, at, m.first[r], &m);
			m.value[at[r]] += CONDITION - shift;
		}
		free(at);
	}
	free(v.length), free(v.place), free(v.value);
	free(in.first), free(in.column), free(in.value);
	return m;
}

struct state {
	double *x, *z, *p, *q, *r;
};

// Solves m z = x, nearly.
static void solve(const struct rows *m, struct state s) {
	double rho = 0, curved = 0, next = 0;
#pragma omp parallel
	{
#pragma omp for schedule(static) reduction(+ : rho)
		for (int i = 0; i < m->n; i++) {
			s.z[i] = 0;
			s.r[i] = s.p[i] = s.x[i];
			rho += s.x[i] * s.x[i];
		}
		for (int step = 0; step < STEPS; step++) {
#pragma omp for schedule(static) reduction(+ : curved)
			for (int i = 0; i < m->n; i++) {
				double sum = 0;
				for (int k = m->first[i]; k < m->first[i + 1]; k++) sum += m->value[k] * s.p[m->column[k]];
				s.q[i] = sum;
				curved += s.p[i] * sum;
			}
			double alpha = rho / curved;
#pragma omp for schedule(static) reduction(+ : next)
			for (int i = 0; i < m->n; i++) {
				s.z[i] += alpha * s.p[i];
				s.r[i] -= alpha * s.q[i];
				next += s.r[i] * s.r[i];
			}
			double beta = next / rho;
#pragma omp for schedule(static)
			for (int i = 0; i < m->n; i++) s.p[i] = s.r[i] + beta * s.p[i];
#pragma omp single
			{
				rho = next;
				curved = next = 0;
			}
		}
	}
}

// One step of the power iteration: x becomes z, of length one. What is estimated of the eigenvalue.
static double iterate(const struct rows *m, struct state s, double shift) {
	double product = 0, square = 0;
	solve(m, s);
#pragma omp parallel for schedule(static) reduction(+ : product, square)
	for (int i = 0; i < m->n; i++) {
		product += s.x[i] * s.z[i];
		square += s.z[i] * s.z[i];
	}
	double length = 1 / sqrt(square);
#pragma omp parallel for schedule(static)
	for (int i = 0; i < m->n; i++) s.x[i] = length * s.z[i];
	return shift + 1 / product;
}

static void reset(int n, struct state s) {
#pragma omp parallel for schedule(static)
	for (int i = 0; i < n; i++) {
		s.x[i] = 1;
		s.z[i] = s.p[i] = s.q[i] = s.r[i] = 0;
	}
}

int main(int argc, char **argv) {
	const char *name = begin(argc, argv, "S", NPB_CLASSES);
	const struct class *class = &CLASSES[npb_class(argv[0], name)];
	size_t n = (size_t)class->n, size = sizeof(double);
	struct state s = {allocate(n, size), allocate(n, size), allocate(n, size), allocate(n, size), allocate(n, size)};
	struct rows m = matrix(class->n, class->nonzeros, class->shift);
	// Once for the caches, as the specification has it.
	reset(class->n, s);
	double zeta = iterate(&m, s, class->shift);
	reset(class->n, s);
	double began = seconds();
	for (int i = 0; i < class->iterations; i++) zeta = iterate(&m, s, class->shift);
	double took = seconds() - began;
	free(m.first), free(m.column), free(m.value);
	free(s.x), free(s.z), free(s.p), free(s.q), free(s.r);
	return finish("cg", name, class->iterations, took, fabs(zeta - class->zeta) <= TOLERANCE);
}
