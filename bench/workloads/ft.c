// 3-D FFT of the NAS Parallel Benchmarks, by their specification (RNR-94-007, section 2.3.5): a partial differential equation is solved by a
// forward transform, and for each step of time a multiplication and an inverse transform, of which a checksum is known.
//
// Planes of equal z are dealt out to the threads, but for the transforms along z, which have rows of equal y: there all data change hands.

#include "workload.h"

#include <math.h>

enum { STEPS = 6, LONGEST = 256, LINES = 8 };
static const double ALPHA = 1e-6, TOLERANCE = 1e-12, PI = 3.141592653589793238;

struct complex {
	double re, im;
};

// S, W and A, with the checksums after each step.
struct class {
	int nx, ny, nz;
	struct complex sums[STEPS];
};
static const struct class CLASSES[] = {
	{64, 64, 64,
	 {{5.546087004964e+02, 4.845363331978e+02},
	  {5.546385409189e+02, 4.865304269511e+02},
	  {5.546148406171e+02, 4.883910722336e+02},
	  {5.545423607415e+02, 4.901273169046e+02},
	  {5.544255039624e+02, 4.917475857993e+02},
	  {5.542683411902e+02, 4.932597244941e+02}}},
	{128, 128, 32,
	 {{5.673612178944e+02, 5.293246849175e+02},
	  {5.631436885271e+02, 5.282149986629e+02},
	  {5.594024089970e+02, 5.270996558037e+02},
	  {5.560698047020e+02, 5.260027904925e+02},
	  {5.530898991250e+02, 5.249400845633e+02},
	  {5.504159734538e+02, 5.239212247086e+02}}},
	{256, 256, 128,
	 {{5.046735008193e+02, 5.114047905510e+02},
	  {5.059412319734e+02, 5.098809666433e+02},
	  {5.069376896287e+02, 5.098144042213e+02},
	  {5.077892868474e+02, 5.101336130759e+02},
	  {5.085233095391e+02, 5.104914655194e+02},
	  {5.091487099959e+02, 5.107917842803e+02}}},
};

// Element (x, y, z) is at (z ny + y) nx + x. `waves` is what has been transformed, `space` what is transformed back, `decay` what a step
// multiplies with. `roots[k]` is the k-th of LONGEST roots of one.
struct grid {
	size_t nx, ny, nz;
	struct complex *waves, *space, roots[LONGEST];
	double *decay;
};

// Some lines, which are transformed together: a processor has vectors of their elements. Two, as each pass goes from one to the other.
struct lines {
	struct complex at[2][LONGEST][LINES];
};

// Transforms the lines in `at[0]`; where they are then. Stockham's algorithm: in a pass, neighbours of transforms of half the length become
// one of twice as many; no element has to be put in order afterwards.
static int transform(struct lines *lines, size_t n, const struct complex *roots, int sign) {
	int from = 0;
	for (size_t stride = 1, half = n / 2; half; stride *= 2, half /= 2, from ^= 1)
		for (size_t p = 0; p < half; p++) {
			struct complex w = roots[p * stride * (LONGEST / n)];
			w.im *= sign;
			for (size_t q = 0; q < stride; q++) {
				const struct complex *a = lines->at[from][q + stride * p], *b = lines->at[from][q + stride * (p + half)];
				struct complex *even = lines->at[!from][q + stride * 2 * p], *odd = lines->at[!from][q + stride * (2 * p + 1)];
				for (int l = 0; l < LINES; l++) {
					struct complex less = {a[l].re - b[l].re, a[l].im - b[l].im};
					even[l] = (struct complex){a[l].re + b[l].re, a[l].im + b[l].im};
					odd[l] = (struct complex){less.re * w.re - less.im * w.im, less.re * w.im + less.im * w.re};
				}
			}
		}
	return from;
}

// Transforms LINES lines of `n` elements that are `step` apart, the lines themselves being `apart`.
static void transform_lines(struct complex *first, size_t n, size_t step, size_t apart, const struct grid *g, int sign) {
	struct lines lines;
	for (size_t i = 0; i < n; i++)
		for (size_t l = 0; l < LINES; l++) lines.at[0][i][l] = first[i * step + l * apart];
	int at = transform(&lines, n, g->roots, sign);
	for (size_t i = 0; i < n; i++)
		for (size_t l = 0; l < LINES; l++) first[i * step + l * apart] = lines.at[at][i][l];
}

static void along_z(const struct grid *g, struct complex *data, int sign) {
#pragma omp parallel for schedule(static)
	for (size_t y = 0; y < g->ny; y++)
		for (size_t x = 0; x < g->nx; x += LINES) transform_lines(data + y * g->nx + x, g->nz, g->nx * g->ny, 1, g, sign);
}

static void along_x_and_y(const struct grid *g, struct complex *data, int sign) {
#pragma omp parallel for schedule(static)
	for (size_t z = 0; z < g->nz; z++) {
		struct complex *plane = data + z * g->ny * g->nx;
		for (size_t y = 0; y < g->ny; y += LINES) transform_lines(plane + y * g->nx, g->nx, 1, g->nx, g, sign);
		for (size_t x = 0; x < g->nx; x += LINES) transform_lines(plane + x, g->ny, g->nx, 1, g, sign);
	}
}

// The square of the frequency at a place of a line: those of the second half are negative.
static double squared(size_t at, size_t n) {
	double frequency = at < n / 2 ? (double)at : (double)at - (double)n;
	return frequency * frequency;
}

static void prepare(struct grid *g) {
	for (int k = 0; k < LONGEST; k++) g->roots[k] = (struct complex){cos(2 * PI * k / LONGEST), sin(2 * PI * k / LONGEST)};
#pragma omp parallel for schedule(static)
	for (size_t z = 0; z < g->nz; z++) {
		uint64_t state = skip(SEED, 2 * g->nx * g->ny * z);
		for (size_t y = 0; y < g->ny; y++)
			for (size_t x = 0; x < g->nx; x++) {
				size_t at = (z * g->ny + y) * g->nx + x;
				double re = draw(&state), im = draw(&state);
				g->waves[at] = (struct complex){re, im};
				g->space[at] = (struct complex){0, 0};
				double frequency = squared(x, g->nx) + squared(y, g->ny) + squared(z, g->nz);
				g->decay[at] = exp(-4 * ALPHA * PI * PI * frequency);
			}
	}
}

// What there is one step of time later.
static void advance(struct grid *g) {
#pragma omp parallel for schedule(static)
	for (size_t z = 0; z < g->nz; z++)
		for (size_t at = z * g->ny * g->nx; at < (z + 1) * g->ny * g->nx; at++) {
			g->waves[at].re *= g->decay[at];
			g->waves[at].im *= g->decay[at];
			g->space[at] = g->waves[at];
		}
	along_z(g, g->space, 1);
	along_x_and_y(g, g->space, 1);
}

static struct complex checksum(const struct grid *g) {
	double re = 0, im = 0, all = (double)(g->nx * g->ny * g->nz);
#pragma omp parallel for schedule(static) reduction(+ : re, im)
	for (size_t j = 1; j <= 1024; j++) {
		struct complex one = g->space[((5 * j % g->nz) * g->ny + 3 * j % g->ny) * g->nx + j % g->nx];
		re += one.re;
		im += one.im;
	}
	return (struct complex){re / all, im / all};
}

static int equal(double is, double should) {
	return fabs((is - should) / should) <= TOLERANCE;
}

int main(int argc, char **argv) {
	const char *name = begin(argc, argv, "S", NPB_CLASSES);
	const struct class *class = &CLASSES[npb_class(argv[0], name)];
	static struct grid g;
	g.nx = (size_t)class->nx, g.ny = (size_t)class->ny, g.nz = (size_t)class->nz;
	size_t all = g.nx * g.ny * g.nz;
	g.waves = allocate(all, sizeof *g.waves);
	g.space = allocate(all, sizeof *g.space);
	g.decay = allocate(all, sizeof *g.decay);
	// What comes before the first step is timed, too; that pages are there is not.
	prepare(&g);
	int verified = 1;
	double began = seconds();
	prepare(&g);
	along_x_and_y(&g, g.waves, -1);
	along_z(&g, g.waves, -1);
	for (int step = 0; step < STEPS; step++) {
		advance(&g);
		struct complex sum = checksum(&g);
		verified &= equal(sum.re, class->sums[step].re) && equal(sum.im, class->sums[step].im);
	}
	double took = seconds() - began;
	free(g.waves), free(g.space), free(g.decay);
	return finish("ft", name, STEPS, took, verified);
}
