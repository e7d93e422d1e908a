// A program that unwinds its own stack at every instruction, in C, for C libraries other than glibc. Functions with names
// that begin with `t_` are spliced.
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#define APART __attribute__((noinline, noclone, noipa))
#define DEEPEST 24
#define TRAP_FLAG 0x100

#ifdef NO_LOADER
// A runtime library that was built for glibc asks for this; those for other C libraries read `dl_iterate_phdr` themselves.
struct object { unsigned long long flags; void *begin, *end, *map, *index; unsigned long long reserved[7]; };
struct search { uintptr_t address; struct object *found; };
static int visit(struct dl_phdr_info *info, size_t size, void *argument) {
	(void)size;
	struct search *search = argument;
	int inside = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + header->p_vaddr;
		inside |= header->p_type == PT_LOAD && search->address - begin < header->p_memsz;
		if (header->p_type == PT_GNU_EH_FRAME) search->found->index = (void *)begin;
	}
	return inside;
}
int _dl_find_object(void *address, struct object *found);
int _dl_find_object(void *address, struct object *found) {
	struct search search = {(uintptr_t)address, found};
	return dl_iterate_phdr(visit, &search) - 1;
}
#endif

extern const char __executable_start, etext;

APART long t_leaf(long n) { return n * 3 + 1; }
APART long t_saves(long a, long b, long c) {
	long d = t_leaf(a), e = t_leaf(b), f = t_leaf(c);
	for (int i = 0; i < 3; i++) d += t_leaf(e + i) * f, e ^= d >> 3, f += e;
	return d + e + f;
}
APART long t_switch(long n) {
	switch (n % 5) {
	case 0: return t_leaf(n) + 11;
	case 1: return t_saves(n, 1, 2);
	case 2: return n ^ 0x55;
	case 3: return t_leaf(n | 7);
	default: return t_saves(n, 2, 3);
	}
}
APART long t_recurses(long n) { return n < 2 ? n : t_recurses(n - 1) + t_recurses(n - 2); }

struct stack { int count; uintptr_t frames[DEEPEST][2]; };
struct walk { struct stack *into; uintptr_t from; int seen; };
static _Unwind_Reason_Code walked(struct _Unwind_Context *context, void *argument) {
	struct walk *walk = argument;
	uintptr_t counter = _Unwind_GetIP(context);
	walk->seen |= counter == walk->from;
	if (!walk->seen) return _URC_NO_REASON;
	if (walk->into->count == DEEPEST) return _URC_END_OF_STACK;
	uintptr_t *frame = walk->into->frames[walk->into->count++];
	frame[0] = counter, frame[1] = _Unwind_GetCFA(context);
	return _URC_NO_REASON;
}

// All frames from one on are those of another stack from some frame on.
static int equal(const struct stack *one, int from, const struct stack *other, int at) {
	int left = one->count - from, right = other->count - at;
	return left > 0 && left == right && !memcmp(one->frames[from], other->frames[at], (size_t)left * sizeof one->frames[0]);
}

static struct stack before, now;
static volatile int first, ending;
static long steps, elsewhere, wrong;
static void step(int number, siginfo_t *info, void *argument) {
	(void)number, (void)info;
	greg_t *registers = ((ucontext_t *)argument)->uc_mcontext.gregs;
	uintptr_t counter = (uintptr_t)registers[REG_RIP];
	if (ending) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	struct walk walk = {&now, counter, 0};
	now.count = 0;
	_Unwind_Backtrace(walked, &walk);
	steps++;
	elsewhere += counter < (uintptr_t)&__executable_start || counter >= (uintptr_t)&etext;
	// Callers stay, or one is added, or one is left.
	if (!first && !equal(&now, 1, &before, 1) && !equal(&now, 2, &before, 1) && !equal(&now, 1, &before, 2)) wrong++;
	first = 0;
	before = now;
}

int main(void) {
	char line[64];
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	sigaction(SIGTRAP, &action, NULL);
	printf("work %p\n", (void *)t_leaf);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long sum = 0;
		first = 1, ending = 0, steps = elsewhere = wrong = 0;
		__asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
		for (long n = 0; n < 8; n++) sum += t_switch(n) + t_recurses(n);
		ending = 1;
		__asm__ volatile("nop\n\tnop" ::: "memory");
		if (steps < 1000) puts("too few");
		printf("%ld: %ld elsewhere, %ld wrong\n", sum, elsewhere, wrong);
		fflush(stdout);
	}
	return 0;
}
