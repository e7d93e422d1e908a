// A program whose hot code is spread over many functions, with indirect calls, deep recursion, loops that never end, signals,
// and a stack of its own. "go N" answers with a sum that depends on every step.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#define APART __attribute__((noinline, noclone, noipa))
static volatile long ticks;
static volatile int spins;

APART long c_mix(long a, long b) {
	for (int i = 0; i < 5; i++) a = a * 31 + b, b ^= a >> 7;
	if (__builtin_expect(a == 0x123456789, 0)) puts("rare");
	return a ^ b;
}
APART long c_deep(long n, long a) { return n <= 0 ? a : c_mix(c_deep(n - 1, a + n), n); }
APART int c_compare(const void *a, const void *b) {
	long x = *(const long *)a, y = *(const long *)b;
	return x < y ? -1 : x > y;
}
APART long c_sorts(long n) {
	long words[64];
	for (int i = 0; i < 64; i++) words[i] = c_mix(n, i) % 1000;
	qsort(words, 64, sizeof *words, c_compare);
	long sum = 0;
	for (int i = 0; i < 64; i++) sum = sum * 3 + words[i];
	return sum;
}
static jmp_buf back;
APART void c_jumps(long n) {
	if (n % 3 == 0) longjmp(back, (int)(n % 7) + 1);
}
APART long c_returns(long n) {
	int how = setjmp(back);
	if (how) return how * 5;
	c_jumps(n);
	return c_mix(n, 2);
}
// The lowest byte of each word that earlier calls have left on the stack, return addresses among them.
APART long c_overwrites(long n) {
	volatile unsigned char own[640];
	long sum = 0;
	for (int i = 0; i < 640; i += 8) own[i] = (unsigned char)(n + i * 5);
	for (int i = 0; i < 40; i++) sum = c_mix(sum, i);
	for (int i = 0; i < 640; i += 8) sum = sum * 3 + own[i];
	return sum;
}
APART long c_tail(long n) { return n & 1 ? c_mix(n, 9) : c_deep(n % 5, n); }
static ucontext_t outside, inside;
static char stack[1 << 16];
static volatile long passed;
APART void c_yields(void) {
	passed = c_mix(passed, 3);
	swapcontext(&inside, &outside);
	passed = c_mix(passed, 4);
}
static void o_other(void) {
	for (;;) c_yields();
}
// Reads a line in a thread whose stack is in the same memory as that of the coroutine.
static char reading[1 << 16] __attribute__((aligned(4096)));
static void *o_reads(void *none) {
	char line[8];
	puts("aside");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin)) exit(0);
	return none;
}
static void o_aside(void) {
	pthread_t thread;
	pthread_attr_t where;
	pthread_attr_init(&where);
	pthread_attr_setstack(&where, reading, sizeof reading);
	pthread_create(&thread, &where, o_reads, NULL);
	pthread_join(thread, NULL);
}
// Another coroutine, of which only the stack pointer is saved, as libraries in assembler do it.
void o_switch(void **save, void *to);
__asm__(".globl o_switch\n.type o_switch, @function\no_switch:\n"
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp, (%rdi)\nmov %rsi, %rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n.size o_switch, . - o_switch\n");
static void *beside[1 << 12], *left_at, *called_at;
static volatile long hopped;
APART void c_hop(void) {
	hopped = c_mix(hopped, 5);
	o_switch(&left_at, called_at);
	hopped = c_mix(hopped, 6);
}
static void o_hops(void) {
	for (;;) c_hop();
}
static void o_begin(void) {
	void **top = beside + sizeof beside / sizeof *beside - 2;
	*--top = NULL; // Its caller.
	*--top = (void *)o_hops;
	left_at = top - 6;
}
APART long c_hops(long n) {
	hopped = n;
	o_switch(&called_at, left_at);
	return hopped;
}
APART long c_switches(long n) {
	passed = n;
	swapcontext(&outside, &inside);
	return passed;
}
APART long c_chooses(long n) {
	switch (n & 15) {
	case 0: return c_mix(n, 1);
	case 1: return n * 7;
	case 2: return c_deep(3, n);
	case 3: return n ^ 0x5a5a;
	case 5: return c_tail(n);
	case 6: return n - 9;
	case 9: return c_mix(n, n);
	case 11: return c_sorts(n);
	default: return n + 1;
	}
}
struct way {
	long (*first)(long), (*second)(long);
};
static const struct way ways[3] = {{c_tail, c_chooses}, {c_chooses, c_returns}, {c_tail, c_sorts}};
APART long c_way(const struct way *own, long n) { return own->second(n) + 1; }
APART long c_ways(const struct way *own, long n) { return own->first(n) ^ c_mix(c_way(own, n + 1), n); }
APART long c_round(long n) {
	long (*through[])(long) = {c_tail, c_chooses, c_sorts, c_returns, c_switches};
	long sum = through[n % 5](n);
	sum = c_mix(sum, c_ways(&ways[n % 3], n));
	sum = c_mix(sum, c_overwrites(n));
	sum = c_mix(sum, c_hops(n));
	return c_mix(sum, c_deep(n % 40, n));
}
APART void c_ticks(int signal) {
	(void)signal;
	ticks = ticks + (c_mix(ticks, 5) != 1);
}
APART void *c_spins(void *word) {
	volatile long *own = word;
	while (spins) *own = c_mix(*own, 1) & 0xffff;
	return NULL;
}

int main(void) {
	char line[64];
	long n;
	getcontext(&inside);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof stack;
	makecontext(&inside, o_other, 0);
	c_switches(0);
	o_begin();
	c_hops(0);
	signal(SIGALRM, c_ticks);
	printf("work %p\n", (void *)c_round);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "aside\n")) {
			o_aside();
			puts("back");
		}
		if (sscanf(line, "go %ld", &n) == 1) {
			struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
			pthread_t threads[2];
			long words[2] = {1, 2}, sum = 0;
			spins = 1;
			for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, c_spins, &words[i]);
			setitimer(ITIMER_REAL, &often, NULL);
			for (long i = 0; i < n; i++) sum = c_mix(sum, c_round(i));
			setitimer(ITIMER_REAL, &never, NULL);
			spins = 0;
			for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
			printf("%ld\n", sum);
		}
		fflush(stdout);
	}
	return 0;
}
