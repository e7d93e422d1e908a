// Functions that end with a jump to another one (tail call): near and deep in the stack, under a
// condition, in chains and circles, with arguments on the stack, through stubs, and left by
// `longjmp`. "NAME N" calls one with 0 to N - 1, and answers with the sum of the results.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))
static volatile long sink;

APART long t_end(long n) {
	sink += n;
	return n * 2 + 1;
}
APART long t_direct(long n) {
	sink++;
	return t_end(n + 1);
}
APART long t_deep(long n) {
	volatile char room[200];
	room[n % 200] = 1;
	sink += room[7];
	return t_end(n + 2);
}
APART long t_sometimes(long n) {
	if (n % 3 == 1) return t_end(n);
	sink += n;
	return n * 3;
}
APART long t_chain(long n) {
	sink += 2;
	return n & 1 ? t_deep(n) : t_sometimes(n);
}
// By a word that nobody changes once the loader has stored it, as compilers of other languages do.
__asm__(".pushsection .data.rel.ro, \"aw\"\n"
	".balign 8\n"
	"0: .quad t_end\n"
	".popsection\n"
	".globl t_fixed\n"
	".type t_fixed, @function\n"
	"t_fixed: .cfi_startproc\n"
	"jmp *0b(%rip)\n"
	".cfi_endproc\n"
	".size t_fixed, . - t_fixed");
long t_fixed(long n);

// One of its exits has no room for a jump, nor has anything near it: for a site there the function
// is copied.
__asm__(".globl t_brief\n"
	".type t_before, @function\n"
	".type t_brief, @function\n"
	".type t_after, @function\n"
	"t_before: .rept 40\n"
	"lea 1(%rdi), %rdi\n"
	".endr\n"
	"ret\n"
	".size t_before, . - t_before\n"
	"t_brief: .cfi_startproc\n"
	"test %rdi, %rdi\n"
	"jne 1f\n"
	"xor %eax, %eax\n"
	"ret\n"
	"1: lea 1(%rdi), %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".size t_brief, . - t_brief\n"
	"t_after: .rept 40\n"
	"lea 1(%rdi), %rdi\n"
	".endr\n"
	"ret\n"
	".size t_after, . - t_after");
long t_brief(long n);
APART long t_shortly(long n) {
	return t_brief(n);
}

APART long t_odd(long n);
APART long t_even(long n) {
	sink++;
	return n ? t_odd(n - 1) : 7;
}
APART long t_odd(long n) {
	sink--;
	return n ? t_even(n - 1) : 8;
}
// `t_even` returns by itself in the end; `t_odd` is then called with the same frame.
APART long t_circle(long n) {
	return t_even(2 * n) + t_odd(0) + sink * 0;
}

APART long t_via(long n);
APART long t_down(long n) {
	return n ? 1 + t_via(n - 1) : 0;
}
APART long t_via(long n) {
	sink++;
	return t_down(n);
}

APART long t_many_end(long a, long b, long c, long d, long e, long f, long g, long h) {
	sink += a + b + c + d + e + f;
	return g * 10 + h;
}
APART long t_many(long a, long b, long c, long d, long e, long f, long g, long h) {
	sink++;
	return t_many_end(b, a, c, d, e, f, g, h);
}
APART long t_eight(long n) {
	return 1 + t_many(1, 2, 3, 4, 5, 6, n, n + 1);
}

// Calls with odd numbers never return; every other four of the calls do not come by a jump.
static jmp_buf out;
APART long t_leap(long n) {
	if (n & 1) longjmp(out, 1);
	return n;
}
APART long t_jumper(long n) {
	sink++;
	return t_leap(n);
}
APART long t_leaping(long n) {
	if (setjmp(out)) return 0;
	return (n & 4 ? t_jumper(n) : t_leap(n)) + sink * 0;
}

static const char *texts[] = {"12", "345", "-6", ""};
APART long t_number(long n) {
	sink++;
	return strtol(texts[n & 3], 0, 10);
}
APART long t_length(long n) {
	sink++;
	return strlen(texts[n & 3]);
}
static long (*volatile pointer)(long) = t_end;
APART long t_unknown(long n) {
	return pointer(n);
}
APART long t_partly(long n) {
	sink++;
	return n % 4 ? n : pointer(n);
}
APART long t_further(long n) {
	sink--;
	return t_partly(n);
}

static const struct {
	const char *name;
	long (*function)(long);
} all[] = {
	{"end", t_end},		{"direct", t_direct},	{"deep", t_deep},     {"sometimes", t_sometimes},
	{"chain", t_chain},	{"even", t_even},	{"odd", t_odd},	      {"via", t_via},
	{"eight", t_eight},	{"leaping", t_leaping}, {"number", t_number}, {"length", t_length},
	{"unknown", t_unknown}, {"circle", t_circle},	{"partly", t_partly},
	{"further", t_further}, {"fixed", t_fixed},
};

struct work {
	long (*function)(long);
	long times, sum;
};
static void *run(void *argument) {
	struct work *work = argument;
	for (long n = 0; n < work->times; n++) work->sum += work->function(n);
	return 0;
}

int main(void) {
	char line[100], name[20];
	long times, threads;
	printf("work %p\n", (void *)t_end);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		pthread_t ids[8];
		struct work works[8] = {0};
		long sum = 0;
		threads = 1;
		if (sscanf(line, "%19s %ld %ld", name, &times, &threads) < 2 || threads > 8) return 1;
		for (size_t at = 0; at < sizeof all / sizeof *all; at++)
			for (long one = 0; one < threads && !strcmp(name, all[at].name); one++) {
				works[one] = (struct work){all[at].function, times, 0};
				if (pthread_create(&ids[one], 0, run, &works[one])) return 1;
			}
		for (long one = 0; one < threads; one++) {
			pthread_join(ids[one], 0);
			sum += works[one].sum;
		}
		printf("%ld\n", sum);
		fflush(stdout);
	}
}
