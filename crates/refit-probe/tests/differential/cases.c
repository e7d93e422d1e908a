// Functions of many shapes, to be compiled with several options.

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct node { struct node *next, *other; long value; double weight; char name[16]; };
struct pair { long first; double second; };
typedef unsigned __int128 wide;

int table(int n, int x) {
	switch (n) {
	case 0: return x + 1;
	case 1: return x * 3;
	case 2: return x ^ 0x55;
	case 3: return x << 2;
	case 4: return x - 77;
	case 5: return x / 3;
	case 6: return -x;
	case 7: return x & 15;
	default: return 0;
	}
}

long inner_table(const unsigned char *text, long n) {
	long sum = 0;
	for (long i = 0; i < (n & 255); i++)
		switch (text[i] % 11) {
		case 0: sum += i; break;
		case 1: sum ^= i << 3; break;
		case 2: sum -= text[i]; break;
		case 4: sum *= 3; break;
		case 5: sum += 0x1234567; break;
		case 8: if (sum & 1) sum++; break;
		case 9: sum = ~sum; break;
		}
	return sum;
}

long carries(unsigned long a, unsigned long b, unsigned long c) {
	unsigned long low, high = 0;
	high += __builtin_add_overflow(a, b, &low);
	high += __builtin_add_overflow(low, c, &low);
	return (long)(low ^ high << 7);
}

int overflows(int a, int b) {
	int sum;
	if (__builtin_mul_overflow(a, b, &sum)) return -1;
	return sum < 0 ? sum + 3 : sum > 100 ? sum - 3 : sum;
}

wide wide_product(unsigned long a, unsigned long b) { return (wide)a * b + (a < b); }

unsigned long wide_quotient(unsigned long a, unsigned long b) { return b ? (unsigned long)(((wide)a << 5) / b) : a; }

int flags(unsigned a, unsigned b) { return (a < b) | (a == b) << 1 | ((int)a > (int)b) << 2 | ((a & b) == 0) << 3; }

long leaf(const long *from) {
	volatile long kept[8];
	for (int i = 0; i < 8; i++) kept[i] = from[i] * (i + 1);
	long sum = 0;
	for (int i = 7; i >= 0; i--) sum = sum * 31 + kept[i];
	return sum;
}

long list(const struct node *node) {
	long sum = 0;
	for (int i = 0; node && i < 50; i++) {
		sum += node->value;
		node = node->value & 1 ? node->next : node->other;
	}
	return sum;
}

static __attribute__((noinline)) long local(long a, long b) { return a * b - (a ^ b); }

long uses_local(long a, long b, long c, long d, long e, long f) {
	long x = local(a, b), y = local(c, d), z = local(e, f);
	return (x + a) ^ (y + b) ^ (z + c) ^ (d + e + f);
}

long recursive(unsigned n, long a) { return (n &= 7) ? recursive(n - 1, a + n) + recursive(n / 2, a ^ n) : a; }

static int is_odd(unsigned n);
static __attribute__((noinline)) int is_even(unsigned n) { return n == 0 ? 1 : is_odd(n - 1); }
static __attribute__((noinline)) int is_odd(unsigned n) { return n == 0 ? 0 : is_even(n - 1); }
int parity(unsigned n) { return is_even(n & 63); }

double polynomial(double x, double y) { return ((x * 3.5 + y) * x - 1.25) * x + (x > y ? x : y); }

float mixed(float a, double b, int c, long d) { return a * (float)b + (float)c / (float)(d | 1); }

double sum_of(const double *numbers, long n) {
	double sum = 0;
	for (long i = 0; i < (n & 127); i++) sum += numbers[i] * (i & 1 ? -1 : 1);
	return sum;
}

void saxpy(float *y, const float *x, float a, long n) {
	for (long i = 0; i < (n & 255); i++) y[i] += a * x[i];
}

long double extended(double a, double b) { return (long double)a * b + 1.0L / (3.0L + a); }

struct pair swapped(struct pair one) { return (struct pair){ (long)one.second, (double)one.first }; }

struct node copied(const struct node *from, long add) {
	struct node to = *from;
	to.value += add;
	to.name[3] = 'x';
	return to;
}

long variable(int n, ...) {
	va_list list;
	va_start(list, n);
	long sum = 0;
	for (int i = 0; i < (n & 15); i++) sum += i & 1 ? va_arg(list, long) : (long)va_arg(list, double);
	va_end(list);
	return sum;
}

long calls_variable(long a, double b) { return variable(4, b, a, b * 2, a + 1); }

long through_pointer(long (*const *which)(long, long), long a, long b) { return which[a & 1](a, b) + 1; }

long tail_call(long (*which)(long, long), long a, long b) { return which(b, a); }

void *moves(char *to, const char *from, size_t n) { return memmove(to, from, n & 511); }

int compares(const char *a, const char *b, size_t n) { return memcmp(a, b, n & 511) + strncmp(a, b, n & 63); }

uint32_t hash(const uint8_t *text, size_t n) {
	uint32_t sum = 2166136261u;
	for (size_t i = 0; i < (n & 1023); i++) sum = (sum ^ text[i]) * 16777619u;
	return sum;
}

int bits(uint64_t x) { return __builtin_popcountll(x) + (x ? __builtin_ctzll(x) + __builtin_clzll(x) : 0); }

void sort(int *numbers, unsigned n) {
	n &= 31;
	for (unsigned i = 1; i < n; i++)
		for (unsigned j = i; j > 0 && numbers[j - 1] > numbers[j]; j--) {
			int kept = numbers[j];
			numbers[j] = numbers[j - 1];
			numbers[j - 1] = kept;
		}
}

long variable_array(unsigned n) {
	n = (n & 31) + 1;
	long numbers[n];
	for (unsigned i = 0; i < n; i++) numbers[i] = i * i;
	long sum = 0;
	for (unsigned i = 0; i < n; i++) sum ^= numbers[n - 1 - i] << (i & 7);
	return sum;
}

long goes_to(const unsigned char *program, long x) {
	static const void *const ways[] = { &&add, &&shift, &&less, &&done };
	int left = 40;
next:
	if (--left == 0) return x;
	goto *ways[*program++ & 3];
add:
	x += 5;
	goto next;
shift:
	x = x << 1 ^ x >> 3;
	goto next;
less:
	x -= *program;
	goto next;
done:
	return x;
}

double elementary(double x) { return sqrt(fabs(x)) + floor(x) - trunc(x * 0.5); }

_Bool chooses(int a, int b, int c) { return a ? b > c : c > 7 && b < 3; }

static long counter;
long counts(long by) { return counter += by; }

char narrow(char a, short b, unsigned char c) { return (char)(a + b * c + (a >> 1)); }

long divides(long a, int b, short c) { return b && c ? a % (b | 1) + b / (c | 1) : a; }
