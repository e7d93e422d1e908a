// A program that unwinds its own stack at every instruction, throws from faults, and is cancelled
// anywhere. Functions with names that begin with `t_` are spliced.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>
#ifdef LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define APART __attribute__((noinline, noclone, noipa))
// libunwind makes a system call for each word that it reads.
#ifdef LIBUNWIND
#define DEEPEST 6
#define ROUNDS 3
#else
#define DEEPEST 24
#define ROUNDS 8
#endif

extern "C" const char __executable_start, etext;

struct Last { ~Last() { __atomic_add_fetch(destroyed, 1, __ATOMIC_RELAXED); } static int count, *destroyed; };
int Last::count, *Last::destroyed = &Last::count;

// Frames of many shapes: none, fixed, of variable size, with and without a frame pointer, with saved
// registers, with uses of memory below the stack pointer.
APART long t_leaf(long n) { return n * 3 + 1; }
APART long t_red(long n) {
	volatile long words[8];
	for (int i = 0; i < 8; i++) words[i] = n + i;
	return words[n & 7] ^ words[3];
}
APART long t_saves(long a, long b, long c) {
	long d = t_leaf(a), e = t_leaf(b), f = t_leaf(c);
	for (int i = 0; i < 3; i++) d += t_red(e + i) * f, e ^= d >> 3, f += e;
	return d + e + f;
}
APART long t_varies(long n) {
	char *room = (char *)__builtin_alloca((size_t)(n % 5 + 1) * 16);
	memset(room, (int)n, 16);
	long sum = t_leaf(room[3]) + t_saves(n, n + 1, room[7]);
	return sum + room[15];
}
__attribute__((optimize("no-omit-frame-pointer"))) APART long t_framed(long n) {
	long sum = 0;
	for (long i = 0; i < n % 4 + 1; i++) sum += t_varies(i + n);
	return sum;
}
APART long t_switch(long n) {
	switch (n % 7) {
	case 0: return t_leaf(n) + 11;
	case 1: return t_framed(n);
	case 2: return n ^ 0x55;
	case 3: return t_red(n) - 7;
	case 4: return t_leaf(n | 7);
	case 5: return n << 2;
	default: return t_saves(n, 2, 3);
	}
}
APART long t_recurses(long n) { return n < 2 ? n : t_recurses(n - 1) + t_recurses(n - 2); }
APART long t_many(long a, long b, long c, long d, long e, long f, long g, long h) {
	return t_leaf(a + g) * b + c - d + (e ^ f) + h;
}
APART long t_passes(long n) { return t_many(n, n + 1, 2, 3, n, 5, n * 2, 7) + t_many(1, 2, 3, 4, 5, 6, n, n); }
APART long t_after(long n) { return n % 3 ? t_switch(n + 1) : t_recurses(n % 7); }
APART double t_floats(double x, long n) {
	double sum = t_leaf(n) * 0.5;
	for (long i = 1; i <= n % 8; i++) sum += i % 2 ? x / i : -x / i;
	return sum;
}
static long (*volatile through[])(long) = {t_leaf, t_switch, t_recurses, t_passes};
APART long t_points(long n) { return through[n % 4](n % 9) * 2; }
// A loop begins at the second instruction, so that only a short jump has room before it, and the padding behind holds the long
// one. No frame is described there.
extern "C" long t_short(long n);
__asm__(".pushsection .text\n.p2align 4\n.type t_short, @function\nt_short:\n.cfi_startproc\nmov %rdi, %rax\n"
	"1: lea 3(%rax, %rax), %rax\nsub $1, %edi\njg 1b\nret\n.cfi_endproc\n.size t_short, . - t_short\n"
	"t_room: .skip 40, 0xcc\n.p2align 4\n.popsection");
extern "C" const unsigned char t_room[40];
// A function that falls out of its end, and out of its description, into another one, as `__memcpy_chk` of glibc does.
extern "C" long t_falls(long n);
__asm__(".pushsection .text\n.p2align 4\n.type t_falls, @function\nt_falls:\n.cfi_startproc\ntest %rdi, %rdi\njs _Z6t_leafl\n"
	".cfi_endproc\n.size t_falls, . - t_falls\n.type t_into, @function\nt_into:\n.cfi_startproc\n"
	"lea 5(%rdi, %rdi), %rax\nnop\nret\n.cfi_endproc\n.size t_into, . - t_into\n.popsection");
APART long t_round(long n) {
	return t_short(n % 4) + t_falls(n - 3) + t_switch(n) + t_after(n) + t_points(n) + t_passes(n) + (long)t_floats(1.5, n) + t_recurses(n % 6);
}

// Faults become exceptions.
APART long t_reads(long *from) { return *from; }
APART long t_faults(long *from, long n) {
	try {
		Last last;
		long sum = t_leaf(n);
		return sum + *from;
	} catch (int fault) {
		return fault;
	} catch (const char *) {
		return -1;
	}
}
APART long t_deep(long *from, long n) {
	Last last;
	if (n > 0) return t_deep(from, n - 1) + 1;
	return t_reads(from);
}
APART long t_catches(long n) {
	long word = n;
	try {
		return t_faults(n % 2 ? nullptr : &word, n) + t_deep(n % 3 ? &word : nullptr, n % 30);
	} catch (int fault) {
		return fault + t_faults(nullptr, n);
	}
}
APART long t_throws(long n) {
	Last last;
	if (n % 2) throw n;
	return n;
}
APART long t_again(long n) {
	try {
		return t_throws(n) + 1;
	} catch (...) {
		throw;
	}
}
APART long t_outer(long n, long depth) {
	Last last;
	if (depth > 0) return t_outer(n, depth - 1) + 1;
	return t_again(n);
}
APART long t_all(long n) {
	try {
		return t_outer(n, 30);
	} catch (long thrown) {
		return thrown * 5;
	}
}
static void fault(int) {
	sigset_t own;
	sigemptyset(&own);
	sigaddset(&own, SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
	throw 77;
}

// Registers that a function preserves for its caller, by their numbers in frame descriptions.
static const int PRESERVED[] = {3, 6, 12, 13, 14, 15};
static const int SAVED[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15};
struct Frame { uintptr_t counter, stack, preserved[6]; };
struct Stack { int count; Frame frames[DEEPEST]; };

static bool same(const Frame &one, const Frame &other) { return !memcmp(&one, &other, sizeof one); }

#ifdef LIBUNWIND
static const int NAMED[] = {UNW_X86_64_RBX, UNW_X86_64_RBP, UNW_X86_64_R12, UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15};
static void unwind(ucontext_t *context, Stack *into) {
	unw_cursor_t cursor;
	into->count = 0;
	if (unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME) < 0) return;
	do {
		Frame *frame = &into->frames[into->count++];
		unw_get_reg(&cursor, UNW_REG_IP, &frame->counter);
		unw_get_reg(&cursor, UNW_REG_SP, &frame->stack);
		for (int i = 0; i < 6; i++) unw_get_reg(&cursor, NAMED[i], &frame->preserved[i]);
	} while (into->count < DEEPEST && unw_step(&cursor) > 0);
}
// The list of libunwind's entries: two numbers, and the first entry.
struct List { unsigned version, generation; const void *volatile first; };
extern "C" const List *_U_dyn_info_list_addr(void);
#else
struct Walk { Stack *into; uintptr_t from; bool seen; };
static _Unwind_Reason_Code walked(struct _Unwind_Context *context, void *argument) {
	Walk *walk = (Walk *)argument;
	Stack *into = walk->into;
	uintptr_t counter = _Unwind_GetIP(context);
	if (!walk->seen) {
		// Frames of the handler come first.
		walk->seen = counter == walk->from;
		if (!walk->seen) return _URC_NO_REASON;
	}
	if (into->count == DEEPEST) return _URC_END_OF_STACK;
	Frame *frame = &into->frames[into->count++];
	frame->counter = counter;
	frame->stack = _Unwind_GetCFA(context);
	for (int i = 0; i < 6; i++) frame->preserved[i] = _Unwind_GetGR(context, PRESERVED[i]);
	return _URC_NO_REASON;
}
static void unwind(ucontext_t *context, Stack *into) {
	into->count = 0;
	Walk walk = {into, (uintptr_t)context->uc_mcontext.gregs[REG_RIP], false};
	_Unwind_Backtrace(walked, &walk);
}
#endif

// Where a handler stays, with a description in its hands, until the byte is another one: the code has been taken out.
enum { NOWHERE, AT_JUMP, IN_COPY, IN_FINDER, IN_LIST };
extern "C" const void *_Unwind_Find_FDE(void *, void *);
static volatile int stays;
static const volatile unsigned char *byte;
static long other_descriptions;
static void stay(uintptr_t counter) {
	unsigned char was = *byte;
	void *bases[3];
	const volatile unsigned *description = (const volatile unsigned *)_Unwind_Find_FDE((void *)counter, bases);
	unsigned begins = description ? *description : 0;
	stays = NOWHERE;
	puts("there");
	fflush(stdout);
	while (*byte == was) usleep(1000);
	other_descriptions += !description || *description != begins;
}

// Whether the steps are those of a search of libunwind.
static volatile bool searches;
static void searched(greg_t *registers) {
#ifdef LIBUNWIND
	// It blocks all signals when it allocates, also that of the next step.
	bool blocks = *(const uint16_t *)registers[REG_RIP] == 0x050f && registers[REG_RAX] == SYS_rt_sigprocmask;
	if (blocks) registers[REG_RAX] = 0, registers[REG_RIP] += 2;
	// It has reached the first entry, and reads that next.
	const void *entry = _U_dyn_info_list_addr()->first;
	bool reads = false;
	for (int i = REG_R8; i <= REG_RCX; i++) reads |= entry && registers[i] == (greg_t)entry;
	if (stays == IN_LIST && reads) stay((uintptr_t)t_leaf);
#else
	(void)registers;
#endif
}

// Stacks before the last step and now; the first frame is that of the instruction itself.
static Stack before, now;
static volatile bool first, ending;
static long steps, elsewhere, wrong;
static void step(int, siginfo_t *, void *argument) {
	ucontext_t *context = (ucontext_t *)argument;
	greg_t *registers = context->uc_mcontext.gregs;
	uintptr_t counter = (uintptr_t)registers[REG_RIP];
	if (ending) {
		registers[REG_EFL] &= ~0x100;
		return;
	}
	if (searches) return searched(registers);
	unwind(context, &now);
	steps++;
	bool inside = (uintptr_t)&__executable_start <= counter && counter < (uintptr_t)&etext;
	elsewhere += !inside;
	Frame here = {counter, (uintptr_t)registers[REG_RSP], {}};
	for (int i = 0; i < 6; i++) here.preserved[i] = (uintptr_t)registers[SAVED[i]];
	if (!first) {
		// Nothing has changed but the innermost frame; or a frame was added, which is that of the last
		// step; or the innermost frame was left, and its caller's is as it was found before.
		auto equal = [](const Stack &one, int from, const Stack &other, int at) {
			int left = one.count - from, right = other.count - at;
			int count = left < right ? left : right;
			for (int i = 0; i < count; i++) if (!same(one.frames[from + i], other.frames[at + i])) return false;
			return count > 0;
		};
		bool stays = equal(now, 1, before, 1);
		// The return address of a call is not where the frame was before the call.
		bool called = equal(now, 2, before, 1) && now.count > 1 && now.frames[1].stack >= before.frames[0].stack
			&& !memcmp(now.frames[1].preserved, before.frames[0].preserved, sizeof here.preserved);
		bool returned = equal(now, 1, before, 2) && before.count > 1 && here.stack == before.frames[1].stack
			&& here.counter == before.frames[1].counter
			&& !memcmp(here.preserved, before.frames[1].preserved, sizeof here.preserved);
		if (!stays && !called && !returned) {
			wrong++;
			if (getenv("SHOW")) {
				fprintf(stderr, "step %ld at %lx: %d frames, before %d\n", steps, counter, now.count, before.count);
				for (int i = 0; i < now.count && i < 9; i++) {
					const uintptr_t *one = &before.frames[i].counter, *other = &now.frames[i].counter;
					for (int j = 0; j < 8; j++) fprintf(stderr, one[j] == other[j] ? " %lx" : " %lx/%lx", one[j], other[j]);
					fprintf(stderr, "\n");
				}
			}
		}
	}
	bool jumps = (uintptr_t)t_room <= counter && counter < (uintptr_t)t_room + sizeof t_room;
	// The code that finds frames has found an area of this program listed, and reads its index next.
	uintptr_t index = (uintptr_t)registers[REG_R8];
	bool finds = stays == IN_FINDER && !inside && index % 4096 == 0 && index >> 40 == (uintptr_t)t_leaf >> 40;
	if ((finds && *(const unsigned *)index == 0x3b031b01) || (stays == AT_JUMP && jumps) || (stays == IN_COPY && !inside && elsewhere > 40)) stay(counter);
	first = false;
	before = now;
	before.frames[0] = here;
}
APART static long stepped(long times) {
	long sum = 0;
	first = true, ending = false, steps = elsewhere = wrong = 0;
	for (long i = 0; i < times; i++) {
		__asm__ volatile("pushfq\norq $0x100,(%%rsp)\npopfq" ::: "memory", "cc");
		sum += t_round(i);
		ending = true;
		// The next trap ends it.
		__asm__ volatile("nop\nnop" ::: "memory");
		ending = false, first = true;
	}
	return sum;
}

APART static void finding(void) {
	void *bases[3];
	first = true, ending = false, steps = elsewhere = wrong = 0;
	__asm__ volatile("pushfq\norq $0x100,(%%rsp)\npopfq" ::: "memory", "cc");
	const void *found = _Unwind_Find_FDE((void *)t_leaf, bases);
	ending = true;
	__asm__ volatile("nop\nnop" ::: "memory");
	other_descriptions += !found;
}

#ifdef LIBUNWIND
// Unwinds its own stack while it is stepped through.
APART static void searching(void) {
	static Stack own;
	ucontext_t context;
	unw_getcontext(&context);
	// Finds afresh what it has remembered.
	unw_flush_cache(unw_local_addr_space, 0, 0);
	searches = true, ending = false;
	__asm__ volatile("pushfq\norq $0x100,(%%rsp)\npopfq" ::: "memory", "cc");
	unwind(&context, &own);
	searches = false, ending = true;
	__asm__ volatile("nop\nnop" ::: "memory");
	other_descriptions += !own.count;
}
#else
static void searching(void) {}
#endif

APART static long walked_by_debugger(long n) { return t_round(n) + t_round(n + 1); }

static volatile bool spinning;
APART long t_spins(volatile long *word) {
	for (;;) {
		long n = *word;
		if (n < 0) return n;
		*word = n * 3 % 1000 + 1;
		spinning = true;
	}
}
static int cleaned;
static void clean(void *) { __atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED); }
APART static void *spun(void *) {
	volatile long word = 1;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
	pthread_cleanup_push(clean, nullptr);
	t_spins(&word);
	pthread_cleanup_pop(0);
	return nullptr;
}

int main(void) {
	char line[64];
	struct sigaction action = {};
	action.sa_sigaction = step;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &action, nullptr);
	signal(SIGSEGV, fault);
	stepped(1);
	t_catches(1);
	printf("work %p\n", (void *)t_leaf);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long n, sum = 0;
		if (sscanf(line, "step %ld", &n) == 1) {
			long all = 0, away = 0, bad = 0;
			for (long i = 0; i < n; i++) sum += stepped(ROUNDS), all += steps, away += elsewhere, bad += wrong;
			printf("%ld: %ld elsewhere, %ld wrong\n", sum, away, bad);
			if (all < 1000 * n) puts("too few");
		} else if (sscanf(line, "stay %ld", &n) == 1) {
			byte = (const volatile unsigned char *)(n == AT_JUMP ? t_short : t_leaf);
			stays = (int)n;
			if (n == IN_FINDER) finding();
			if (n == IN_LIST) searching();
			// Afterwards the rest happens as before.
			sum = n >= IN_FINDER && stays ? -1 : stepped(ROUNDS);
			printf("%ld: %ld other descriptions\n", sum, other_descriptions);
		} else if (sscanf(line, "throw %ld", &n) == 1) {
			Last::count = 0;
			for (long i = 0; i < n; i++) sum = sum * 3 + t_catches(i) + t_all(i);
			printf("%ld %d\n", sum, Last::count);
		} else if (sscanf(line, "walk %ld", &n) == 1) {
			// A debugger that steps leaves no trap flag behind, which would cause more steps.
			sum = walked_by_debugger(n);
			printf("%ld %ld\n", sum, steps);
		} else if (sscanf(line, "cancel %ld", &n) == 1) {
			cleaned = 0;
			for (long i = 0; i < n; i++) {
				pthread_t thread;
				void *result;
				spinning = false;
				pthread_create(&thread, nullptr, spun, nullptr);
				while (!spinning) {}
				pthread_cancel(thread);
				pthread_join(thread, &result);
				sum += result == PTHREAD_CANCELED;
			}
			printf("%ld %d\n", sum, cleaned);
		}
		fflush(stdout);
	}
	return 0;
}
