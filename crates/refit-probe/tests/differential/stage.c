// A stage for the functions of the program that this is loaded into before `main`, or of a library.
// Each runs in a child process of its own, from registers and memory derived from a seed, until it
// returns, faults, makes a system call, or takes too long. The board records how it ended.
//
// REFIT_STAGE_BOARD is a file with requests (two words each: address, seed) and, for each pass, the
// ends. REFIT_STAGE_LIBRARY is a library to load. Commands on standard input: "memory BEGIN END"
// (memory that ends are compared by, too), "run PASS FILL" (runs all requests; FILL is the value of
// unused stack; if it is odd, each word differs).
//
// Between the first request and the last, no library function is called: the functions on the stage
// may be those of the C library.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 4096, REQUESTS = 0, ENDS = MOST * 16, PASSES = 4, PLACES = 16 };
enum { ARENA = 1 << 17, STACK = 1 << 18, ABOVE = 1 << 13, ASIDE = 1 << 17, GUARD = 1 << 20 };

// Nothing is mapped there: a function that gets there has returned.
static const uint64_t BACK = 0x6bacbacbac0;

struct request { uint64_t address, seed; };

struct end {
	// 1; 2 if the stack pointer was not on the stack.
	uint64_t ended, signal, fault, rip, flags, top, memory, above;
	uint64_t general[16];
	uint8_t low[256], high[256], x87[136], spare[184];
};
_Static_assert(sizeof(struct end) == 1024, "as its reader has it");

static struct {
	struct request *requests;
	struct end *ends, *end;
	uint64_t *arena, *stack, *entry, address, seed;
	struct { uint64_t *begin, *end; } places[PLACES];
	unsigned count;
	int begun;
} state;

static inline long call(long number, long a, long b, long c, long d) {
	long result;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

__asm__(".text\nstage_restore: mov $15, %eax\nsyscall\n");
extern void stage_restore(void) __attribute__((visibility("hidden")));

// Sebastiano Vigna's splitmix64.
static inline uint64_t next(uint64_t *seed) {
	uint64_t z = *seed += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// Value of a register or a word of memory: often a pointer, else a small number, or anything.
static inline uint64_t value(uint64_t *seed) {
	uint64_t kind = next(seed) % 16, number = next(seed);
	if (kind < 8) return (uint64_t)state.arena + number % (ARENA / 2) / 8 * 8;
	if (kind < 11) return 0;
	if (kind < 14) return number % 64;
	return kind == 14 ? number % 0x100000000 : number;
}

static inline uint64_t sum(const uint64_t *from, const uint64_t *to, uint64_t so_far) {
	for (; from < to; from++) so_far = (so_far ^ *from) * 0x100000001b3 ^ so_far >> 29;
	return so_far;
}

static const int registers[16] = {
	REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

// Offsets in the area that XSAVE writes, and in the software-reserved part that the kernel writes.
enum { VECTORS = 160, MAGIC = 464, FEATURES = 472, HEADER = 512, UPPER = 576, AVX = 4 };

// Sets the registers that the handler returns to, by the seed.
static void begin(ucontext_t *context) {
	uint64_t seed = state.seed;
	for (int i = 0; i < 16; i++) context->uc_mcontext.gregs[registers[i]] = value(&seed);
	context->uc_mcontext.gregs[REG_RSP] = (long)state.entry;
	context->uc_mcontext.gregs[REG_RIP] = state.address;
	// Carry, parity, auxiliary, zero, sign, overflow.
	context->uc_mcontext.gregs[REG_EFL] = 0x202 | (next(&seed) & 0x8d5);
	uint8_t *vectors = (uint8_t *)context->uc_mcontext.fpregs;
	for (int i = 0; i < 32; i++) ((uint64_t *)(vectors + VECTORS))[i] = next(&seed);
	if (*(uint32_t *)(vectors + MAGIC) == FP_XSTATE_MAGIC1 && *(uint64_t *)(vectors + FEATURES) & AVX) {
		*(uint64_t *)(vectors + HEADER) |= AVX | 2;
		for (int i = 0; i < 32; i++) ((uint64_t *)(vectors + UPPER))[i] = next(&seed);
	}
}

static void handle(int signal, siginfo_t *info, void *data) {
	ucontext_t *context = data;
	if (!state.begun) {
		state.begun = 1;
		return begin(context);
	}
	struct end *end = state.end;
	uint8_t *vectors = (uint8_t *)context->uc_mcontext.fpregs;
	end->signal = signal;
	end->fault = signal == SIGSYS ? (uint64_t)info->si_syscall : (uint64_t)info->si_addr;
	end->rip = context->uc_mcontext.gregs[REG_RIP];
	end->flags = context->uc_mcontext.gregs[REG_EFL];
	for (int i = 0; i < 16; i++) end->general[i] = context->uc_mcontext.gregs[registers[i]];
	for (int i = 0; i < 256; i++) end->low[i] = vectors[VECTORS + i];
	for (int i = 0; i < 136; i++) end->x87[i] = i < 8 ? vectors[i] : vectors[24 + i];
	int wide = *(uint32_t *)(vectors + MAGIC) == FP_XSTATE_MAGIC1 && *(uint64_t *)(vectors + HEADER) & AVX;
	for (int i = 0; i < 256; i++) end->high[i] = wide ? vectors[UPPER + i] : 0;
	uint64_t *top = (uint64_t *)end->general[4];
	int within = top >= state.stack && top < state.stack + STACK / 8 - 1;
	end->top = within ? *top : 0;
	end->memory = sum(state.arena, state.arena + ARENA / 8, 1);
	for (unsigned i = 0; i < state.count; i++)
		end->memory = sum(state.places[i].begin, state.places[i].end, end->memory);
	end->above = sum(state.entry, state.stack + STACK / 8, 1);
	// A function that allocates an array of any size may leave a stack pointer that nothing can be
	// pushed to.
	end->ended = top >= state.stack && top <= state.entry + 1 ? 1 : 2;
	call(SYS_exit_group, 0, 0, 0, 0);
}

// From here on makes no system call, except to return from handlers and to exit.
static void go(void) {
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	struct itimerval limit = { { 0, 20000 }, { 0, 20000 } };
	call(SYS_setitimer, ITIMER_VIRTUAL, (long)&limit, 0, 0);
	call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
	if (call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0) != 0) call(SYS_exit_group, 1, 0, 0, 0);
	__asm__ volatile("ud2");
}

static void run(unsigned pass, uint64_t fill) {
	for (unsigned i = 0; i < STACK / 8; i++) {
		uint64_t seed = i;
		state.stack[i] = &state.stack[i] < state.entry ? fill & 1 ? fill * (2 * i + 1) : fill : value(&seed);
	}
	*state.entry = BACK;
	for (unsigned i = 0; i < MOST && state.requests[i].address; i++) {
		state.address = state.requests[i].address;
		state.seed = state.requests[i].seed;
		state.end = &state.ends[pass * MOST + i];
		state.end->ended = 0;
		long id = call(SYS_clone, SIGCHLD, 0, 0, 0);
		if (id == 0) go();
		while (call(SYS_wait4, id, 0, 0, 0) == -EINTR) {}
	}
}

static int number(const char **text, uint64_t *into) {
	while (**text == ' ') ++*text;
	const char *begins = *text;
	for (*into = 0; **text >= '0' && **text <= '9'; ++*text) *into = *into * 10 + (**text - '0');
	return *text > begins;
}

static void say(const char *text, long length) {
	call(SYS_write, 1, (long)text, length, 0);
}

static void obey(const char *line) {
	const char *rest = line + 1;
	uint64_t first = 0, second = 0;
	while (*rest > ' ') rest++;
	if (!number(&rest, &first) || !number(&rest, &second)) return;
	if (line[0] == 'm' && state.count < PLACES) {
		state.places[state.count].begin = (uint64_t *)first;
		state.places[state.count++].end = (uint64_t *)second;
	}
	if (line[0] == 'r' && first < PASSES) run(first, second);
	say("done\n", 5);
}

static uint64_t *memory(uint64_t bytes) {
	// With nothing mapped on either side.
	char *place = mmap(0, bytes + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED || mprotect(place + GUARD, bytes, PROT_READ | PROT_WRITE)) exit(3);
	return (uint64_t *)(place + GUARD);
}

static void prepare(const char *board) {
	int file = open(board, O_RDWR);
	uint64_t size = ENDS + PASSES * MOST * sizeof(struct end);
	char *mapped = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || mapped == MAP_FAILED) exit(3);
	state.requests = (struct request *)mapped;
	state.ends = (struct end *)(mapped + ENDS);
	state.arena = memory(ARENA);
	state.stack = memory(STACK);
	state.entry = state.stack + (STACK - ABOVE) / 8 - 1;
	uint64_t seed = 1;
	for (unsigned i = 0; i < ARENA / 8; i++) state.arena[i] = value(&seed);

	stack_t aside = { .ss_sp = memory(ASIDE), .ss_size = ASIDE };
	sigaltstack(&aside, 0);
	// Bypasses the C library, whose own return from handlers may be spliced.
	struct { void *handler; unsigned long flags; void (*restorer)(void); unsigned long mask; } action =
		{ handle, SA_SIGINFO | SA_ONSTACK | 0x04000000, stage_restore, ~0UL };
	int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGVTALRM };
	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
		if (call(SYS_rt_sigaction, signals[i], (long)&action, 0, 8)) exit(3);
	// Functions that examine the processor find the same each time.
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
}

__attribute__((constructor)) static void stage(void) {
	static char line[256];
	const char *board = getenv("REFIT_STAGE_BOARD"), *library = getenv("REFIT_STAGE_LIBRARY");
	if (!board) return;
	if (library && !dlopen(library, RTLD_NOW)) {
		printf("%s\n", dlerror());
		exit(2);
	}
	prepare(board);
	say("ready\n", 6);
	for (unsigned at = 0; call(SYS_read, 0, (long)&line[at], 1, 0) == 1;) {
		if (line[at] != '\n') {
			at = (at + 1) % sizeof line;
			continue;
		}
		line[at] = 0;
		at = 0;
		obey(line);
	}
	call(SYS_exit_group, 0, 0, 0, 0);
}
