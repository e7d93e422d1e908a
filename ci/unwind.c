// A library that is preloaded into a program (ci/unwind.sh): the program's first thread steps through itself, and at each step
// its stack is unwound by GCC's runtime library, or by nongnu libunwind (-DLIBUNWIND). What a step may change of a stack follows from the instruction: a call adds
// a frame, a return takes one away, every other instruction leaves all callers as they are, with the registers that are
// theirs. It does not matter what the code is, or whether it was spliced in, so descriptions are not compared with
// themselves.
//
//   UNWIND_LOG     the file for what is found
//   UNWIND_BEGIN   a FIFO; stepping begins when something has been written to it
//   UNWIND_STEPS   the number of steps after which the program goes on by itself
//   UNWIND_PAUSE   microseconds for which the program goes on by itself when it has come to nothing new for a while; 0: none.
//                  With pauses, more of it is seen, but not the same at each run. So the log of the run without spliced code
//                  lacks some of what the program itself describes wrongly (LLVM 14 moves the stack pointer before it says
//                  so). A wrong stack at a step within the program's own code is therefore logged as `own`, to be examined
//                  by a run with UNWIND_AGAIN. Spliced code without a description is counted by itself, and logged
//   UNWIND_AGAIN   a log of the same program with `own` lines. The program is not stepped through: it has a breakpoint at each
//                  instruction that these lines name, its stack is examined before and after such an instruction, and the
//                  log gets a line for each one at which it is wrong without spliced code, too
//   UNWIND_KNOWN   a log of the same program without spliced code; functions that were wrong there, or that led to code
//                  without a description, are left out
//   UNWIND_FUNCTIONS the file for the functions that led to spliced code: each by its file and its place there
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#ifdef LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define DEEPEST 96
#define TRAP_FLAG 0x100
#define OFTEN 8
#define LONG 1000
// Spliced code is in mappings of this name.
#define AREA "/memfd:refit"

// Registers that a function preserves for its caller, by their numbers in frame descriptions.
#ifndef LIBUNWIND
static const int PRESERVED[] = {3, 6, 12, 13, 14, 15};
#endif
static const int SAVED[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15};

struct frame { uintptr_t counter, stack, preserved[6]; };
struct stack { int count; struct frame frames[DEEPEST]; };
enum kind { PLAIN, CALL, RETURN, JUMP };

extern int __sigaction(int, const struct sigaction *, struct sigaction *);

// A set of addresses with a number each.
#define ROOM (1 << 22)
struct set { uintptr_t *keys; uint8_t *numbers; long count; };

static struct stack stacks[2];
static struct set steps_at, functions, known, told;
static struct range { uintptr_t from, to; bool area; } ranges[4096];
static int range_count, log_file = -1, functions_file = -1, now, first_thread;
static long steps, most, pause_for, nothing_new, undescribed, own, checked, inside, area_instructions, wrong;
static int awake;
static bool valid, paused;
static volatile bool unwinds;
static sigjmp_buf unwound;
static timer_t timer;
static enum kind last_kind;
static uintptr_t last_counter, before_last, site;
static char maps[1 << 20];

static struct set set(void) {
	struct set made = {calloc(ROOM, sizeof(uintptr_t)), calloc(ROOM, 1), 0};
	if (!made.keys || !made.numbers) abort();
	return made;
}

// Returns the number of an address, and whether it was there.
static uint8_t *number(struct set *set, uintptr_t key, bool *there) {
	size_t at = (key * 0x9e3779b97f4a7c15) >> 42;
	while (set->keys[at] && set->keys[at] != key) at = (at + 1) % ROOM;
	*there = set->keys[at] == key;
	if (!*there) {
		if (++set->count > ROOM / 2) abort();
		set->keys[at] = key;
	}
	return &set->numbers[at];
}

static bool put(struct set *set, uintptr_t key) {
	bool there;
	number(set, key, &there);
	return !there;
}

static bool has(const struct set *set, uintptr_t key) {
	size_t at = (key * 0x9e3779b97f4a7c15) >> 42;
	while (set->keys[at] && set->keys[at] != key) at = (at + 1) % ROOM;
	return set->keys[at] == key;
}

static void say(int file, const char *format, ...) {
	char line[1024 + 4096];
	va_list rest;
	va_start(rest, format);
	int length = vsnprintf(line, sizeof line, format, rest);
	va_end(rest);
	if (write(file, line, (size_t)length) != length) abort();
}

static void read_maps(void) {
	int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	for (ssize_t more; (more = read(file, maps + length, sizeof maps - 1 - length)) > 0;) length += (size_t)more;
	close(file);
	maps[length] = 0;
}

static void read_ranges(void) {
	read_maps();
	range_count = 0;
	for (char *line = maps; *line && range_count < 4096;) {
		char *end = strchrnul(line, '\n');
		struct range *range = &ranges[range_count];
		char modes[8] = "", *rest = line;
		range->from = strtoul(rest, &rest, 16);
		range->to = strtoul(rest + 1, &rest, 16);
		memcpy(modes, rest + 1, 4);
		if (modes[2] == 'x') {
			char *name = memmem(line, (size_t)(end - line), AREA, sizeof AREA - 1);
			range->area = name != NULL;
			range_count++;
		}
		line = *end ? end + 1 : end;
	}
}

static bool is_area(uintptr_t counter) {
	static struct range *last;
	if (last && counter >= last->from && counter < last->to) return last->area;
	for (int tries = 0; tries < 2; tries++) {
		for (int at = 0; at < range_count; at++)
			if (counter >= ranges[at].from && counter < ranges[at].to) {
				last = &ranges[at];
				return last->area;
			}
		last = NULL;
		read_ranges();
	}
	return false;
}

static bool is_call_of_system(uintptr_t counter) { return *(const uint16_t *)counter == 0x050f; }

static enum kind kind_of(const uint8_t *code) {
	while (strchr("\x66\xf2\xf3\x2e\x3e\x26\x36\x64\x65", *code) && *code) code++;
	if ((*code & 0xf0) == 0x40) code++;
	int reg = code[1] >> 3 & 7;
	switch (*code) {
	case 0xe8: return CALL;
	case 0xc2: case 0xc3: return RETURN;
	case 0xe9: case 0xeb: return JUMP;
	case 0xff: return reg == 2 ? CALL : reg == 4 ? JUMP : PLAIN;
	default: return PLAIN;
	}
}

#ifdef LIBUNWIND
static const int NAMED[] = {UNW_X86_64_RBX, UNW_X86_64_RBP, UNW_X86_64_R12, UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15};
static void unwind(ucontext_t *context, struct stack *into) {
	unw_cursor_t cursor;
	into->count = 0;
	if (unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME) < 0) return;
	do {
		struct frame *frame = &into->frames[into->count];
		unw_get_reg(&cursor, UNW_REG_IP, &frame->counter);
		// The outermost function has a caller without an address, whose registers mean nothing.
		if (into->count++ && !frame->counter) {
			into->count--;
			break;
		}
		unw_get_reg(&cursor, UNW_REG_SP, &frame->stack);
		for (int at = 0; at < 6; at++) unw_get_reg(&cursor, NAMED[at], &frame->preserved[at]);
	} while (into->count < DEEPEST && unw_step(&cursor) > 0);
}
#else
struct walk { struct stack *into; uintptr_t from; bool seen; };
static _Unwind_Reason_Code walked(struct _Unwind_Context *context, void *argument) {
	struct walk *walk = argument;
	uintptr_t counter = _Unwind_GetIP(context);
	if (!walk->seen && counter != walk->from) return _URC_NO_REASON;
	walk->seen = true;
	// The outermost function has a caller without an address, whose registers mean nothing.
	if (walk->into->count == DEEPEST || (walk->into->count && !counter)) return _URC_END_OF_STACK;
	struct frame *frame = &walk->into->frames[walk->into->count++];
	frame->counter = counter;
	frame->stack = _Unwind_GetCFA(context);
	for (int at = 0; at < 6; at++) frame->preserved[at] = _Unwind_GetGR(context, PRESERVED[at]);
	return _URC_NO_REASON;
}

static void unwind(ucontext_t *context, struct stack *into) {
	struct walk walk = {into, (uintptr_t)context->uc_mcontext.gregs[REG_RIP], false};
	into->count = 0;
	// GCC's unwinder reads code at return addresses without looking whether it is there.
	unwinds = true;
	if (!sigsetjmp(unwound, 0)) _Unwind_Backtrace(walked, &walk);
	unwinds = false;
}
#endif

// Returns the number of frames, from the first on, that are equal; all of them if all are.
static int equal(const struct frame *ones, int count, const struct frame *others, int other_count, int *differs) {
	int shared = count < other_count ? count : other_count;
	for (int at = 0; at < shared; at++)
		if (memcmp(&ones[at], &others[at], sizeof *ones)) return *differs = at;
	return *differs = count == other_count ? -1 : shared;
}

// Returns whether two stacks have the same frames, each from one of them on.
static bool share(const struct stack *new, int from, const struct stack *old, int at, int *differs) {
	int count = new->count - from, other = old->count - at;
	*differs = 0;
	if (count < 0 || other < 0) return false;
	// The outer frames of such stacks are not known.
	if (new->count == DEEPEST || old->count == DEEPEST) count = other = DEEPEST / 2;
	return equal(new->frames + from, count, old->frames + at, other, differs), *differs < 0;
}

// Returns whether a step of this kind can have made one stack of the other.
static bool follows(enum kind kind, const struct stack *old, const struct stack *new, const greg_t *registers, int *differs) {
	if (kind == RETURN) return share(new, 1, old, 2, differs);
	if (kind == PLAIN) return share(new, 1, old, 1, differs);
	*differs = 0;
	if (new->count < 2) return false;
	struct frame caller = {*(uintptr_t *)registers[REG_RSP], (uintptr_t)registers[REG_RSP] + 8, {0}};
	for (int at = 0; at < 6; at++) caller.preserved[at] = (uintptr_t)registers[SAVED[at]];
	if (memcmp(&caller, &new->frames[1], sizeof caller)) return false;
	return share(new, 2, old, 1, differs);
}

// Returns whether a short jump leads to a long one: its long half, which is not in the function.
static bool is_hop(uintptr_t from, uintptr_t to) {
	return *(const uint8_t *)from == 0xeb && *(const uint8_t *)to == 0xe9 && from + 2 + (uintptr_t)((const int8_t *)from)[1] == to;
}

static bool described(uintptr_t counter) { return _Unwind_FindEnclosingFunction((void *)(counter + 1)) != NULL; }

static uintptr_t function_of(uintptr_t counter) {
	uintptr_t from = (uintptr_t)_Unwind_FindEnclosingFunction((void *)(counter + 1));
	return from ? from : counter;
}

// Prints a function by its file and the place there.
static void say_place(uintptr_t address) {
	for (char *line = maps, *end; *line; line = *end ? end + 1 : end) {
		end = strchrnul(line, '\n');
		unsigned long from, to, offset;
		int name = 0;
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &from, &to, &offset, &name) != 3 || address < from || address >= to) continue;
		say(functions_file, "%.*s %lx\n", name ? (int)(end - line - name) : 0, line + name, address - from + offset);
	}
}

static void report(void) {
	read_maps();
	for (size_t at = 0; functions_file >= 0 && at < ROOM; at++)
		if (functions.keys[at]) say_place(functions.keys[at]);
	say(log_file, "%ld steps, %ld examined, %ld in spliced code, at %ld instructions of %ld functions: %ld not described, %ld wrong in its own code, %ld wrong\n",
	    steps, checked, inside, area_instructions, functions.count, undescribed, own, wrong);
}

__attribute__((destructor)) static void finish(void) {
	if (!most) return;
	// The next step is the last one, so that none is in the report.
	most = 0;
	report();
}

// Programs may end without destructors.
__attribute__((noreturn)) void _exit(int code) {
	if (getpid() == first_thread) finish();
	for (;;) syscall(SYS_exit_group, code);
}
__attribute__((noreturn)) void _Exit(int code) { _exit(code); }

static void compare(const ucontext_t *context, bool area) {
	const greg_t *registers = context->uc_mcontext.gregs;
	const struct stack *old = &stacks[!now], *new = &stacks[now];
	int differs, unused;
	// In spliced code, a call is a push and a jump.
	bool spliced = is_area(last_counter), maybe = spliced && (last_kind == PLAIN || last_kind == JUMP);
	enum kind kind = last_kind;
	// The trap after a system call comes one instruction late.
	if (is_call_of_system(last_counter) && (uintptr_t)registers[REG_RIP] != last_counter + 2) kind = kind_of((const uint8_t *)last_counter + 2);
	if (kind == JUMP) kind = PLAIN;
	bool right = follows(kind, old, new, registers, &differs) || (maybe && follows(CALL, old, new, registers, &unused));
	uintptr_t counter = (uintptr_t)registers[REG_RIP];
	uintptr_t origin = area ? site : is_hop(last_counter, counter) ? last_counter : counter;
	uintptr_t last_origin = spliced ? site : is_hop(before_last, last_counter) ? before_last : last_counter;
	uintptr_t function = function_of(origin), last_function = function_of(last_origin);
	checked++;
	inside += area;
	if (right || has(&known, function) || has(&known, last_function)) return;
	// Nobody finds the callers of code that the program does not describe; nor is it known of what came before a pause.
	if (!described(origin) || !described(last_origin)) return;
	const char *what = "wrong";
	if (pause_for && !area && !spliced && origin == counter && last_origin == last_counter) own++, what = "own";
	else if (pause_for && ((area && !described(counter)) || (spliced && !described(last_counter)))) undescribed++, what = "none";
	else wrong++;
	if (!put(&told, counter)) return;
	say(log_file, "%s %lx in %lx%s, after %lx in %lx, frame %d of %d, before %d: %lx %lx, before %lx %lx\n", what, counter, function,
	    area ? " [refit]" : "", last_counter, last_function, differs + 1, new->count, old->count,
	    new->frames[differs + 1].counter, new->frames[differs + 1].stack, old->frames[differs + 1].counter,
	    old->frames[differs + 1].stack);
}

// Carries out calls that would take the signal away from the program. Returns whether it was one.
static bool made(ucontext_t *context) {
	greg_t *registers = context->uc_mcontext.gregs;
	uintptr_t counter = (uintptr_t)registers[REG_RIP];
	if (!is_call_of_system(counter)) return false;
	if (registers[REG_RAX] == SYS_exit_group) finish();
	bool action = registers[REG_RAX] == SYS_rt_sigaction && registers[REG_RDI] == SIGTRAP;
	bool mask = registers[REG_RAX] == SYS_rt_sigprocmask && registers[REG_R10] == 8;
	if (!action && !mask) return false;
	if (mask && registers[REG_RDI] > SIG_SETMASK) return false;
	if (mask) {
		uint64_t *own = (uint64_t *)&context->uc_sigmask, old = *own;
		uint64_t *asked = (uint64_t *)registers[REG_RSI], *answer = (uint64_t *)registers[REG_RDX];
		if (asked && registers[REG_RDI] == SIG_BLOCK) *own |= *asked;
		if (asked && registers[REG_RDI] == SIG_UNBLOCK) *own &= ~*asked;
		if (asked && registers[REG_RDI] == SIG_SETMASK) *own = *asked;
		*own &= ~(1ull << (SIGTRAP - 1));
		if (answer) *answer = old;
	}
	registers[REG_RAX] = 0;
	registers[REG_RIP] += 2;
	return true;
}

#include "unwind_again.h"

static void stepped(int number_of_signal, siginfo_t *info, void *argument) {
	(void)number_of_signal;
	ucontext_t *context = argument;
	greg_t *registers = context->uc_mcontext.gregs;
	int error = errno;
	if (own_memory >= 0) {
		broke(context);
		errno = error;
		return;
	}
	if (info->si_code == SI_TIMER && steps < most) {
		// The first step is that after the next instruction.
		registers[REG_EFL] |= TRAP_FLAG;
		valid = false, paused = true, nothing_new = 0;
		while (made(context)) {}
		return;
	}
	if (syscall(SYS_gettid) != first_thread || steps >= most) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		errno = error;
		return;
	}
	uintptr_t counter = (uintptr_t)registers[REG_RIP];
	bool area = is_area(counter), there;
	uint8_t *times = number(&steps_at, counter, &there);
	if (area && paused) {
		// Nothing says which function has led here.
		site = 0;
	} else if (area && !is_area(last_counter)) {
		site = is_hop(before_last, last_counter) ? before_last : last_counter;
		put(&functions, function_of(site));
	}
	if (area && !there) area_instructions++;
	if (*times < OFTEN) awake = 300, nothing_new = 0;
	// What is executed often is examined at times only.
	bool look = awake-- > 0 || (steps >> 10) % 8 == 0;
	if (look) {
		now = !now;
		unwind(context, &stacks[now]);
		if (valid) {
			compare(context, area);
			if (*times < OFTEN) ++*times;
		}
	}
	valid = look;
	paused = false;
	steps++;
	last_kind = kind_of((const uint8_t *)counter);
	before_last = last_counter ? last_counter : counter;
	last_counter = counter;
	while (made(context)) {
		last_counter = (uintptr_t)registers[REG_RIP];
		last_kind = kind_of((const uint8_t *)last_counter);
	}
	if (pause_for && ++nothing_new > LONG) {
		struct itimerspec once = {.it_value.tv_nsec = pause_for * 1000};
		timer_settime(timer, 0, &once, NULL);
		registers[REG_EFL] &= ~TRAP_FLAG;
	}
	if (steps == most) {
		finish();
		registers[REG_EFL] &= ~TRAP_FLAG;
	}
	errno = error;
}

static void faulted(int number) {
	if (unwinds) siglongjmp(unwound, 1);
	// It happens again, and ends the program.
	__sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

// The same while the program runs by itself.
int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
	if ((number != SIGTRAP && number != SIGSEGV) || getpid() != first_thread) return __sigaction(number, action, old);
	if (old) memset(old, 0, sizeof *old);
	return 0;
}

static void read_known(const char *path) {
	FILE *file = fopen(path, "r");
	char line[1024];
	while (file && fgets(line, sizeof line, file)) {
		unsigned long counter, function, last, last_function;
		if (sscanf(line, "wrong %lx in %lx, after %lx in %lx", &counter, &function, &last, &last_function) != 4) continue;
		put(&known, function);
		// Control fell out of its end.
		if (function == counter) put(&known, last_function);
	}
	if (file) fclose(file);
}

__attribute__((constructor)) static void begin(void) {
	const char *log = getenv("UNWIND_LOG"), *fifo = getenv("UNWIND_BEGIN"), *limit = getenv("UNWIND_STEPS");
	if (!log) return;
	log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (getenv("UNWIND_FUNCTIONS"))
		functions_file = open(getenv("UNWIND_FUNCTIONS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	steps_at = set(), functions = set(), known = set(), told = set();
	if (getenv("UNWIND_KNOWN")) read_known(getenv("UNWIND_KNOWN"));
	// Programs that this one starts are not stepped through.
	unsetenv("UNWIND_LOG");
	unsetenv("LD_PRELOAD");
	pause_for = getenv("UNWIND_PAUSE") ? atol(getenv("UNWIND_PAUSE")) : 0;
	first_thread = (int)syscall(SYS_gettid);
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGTRAP};
	event._sigev_un._tid = first_thread;
	if (pause_for && timer_create(CLOCK_MONOTONIC, &event, &timer)) abort();
	char byte;
	int begin = fifo ? open(fifo, O_RDONLY | O_CLOEXEC) : -1;
	if (fifo && read(begin, &byte, 1) != 1) abort();
	if (fifo) close(begin);
	stack_t other = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
	sigaltstack(&other, NULL);
	struct sigaction action = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	__sigaction(SIGTRAP, &action, NULL);
	__sigaction(SIGSEGV, &(struct sigaction){.sa_handler = faulted, .sa_flags = SA_ONSTACK | SA_NODEFER}, NULL);
	read_ranges();
	// The first unwinding allocates.
	ucontext_t here;
	getcontext(&here);
	unwind(&here, &stacks[0]);
	if (getenv("UNWIND_AGAIN")) {
		read_again(getenv("UNWIND_AGAIN"));
		return;
	}
	most = limit ? atol(limit) : 5000000;
	__asm__ volatile("pushfq\n\torl %0, (%%rsp)\n\tpopfq" ::"i"(TRAP_FLAG) : "memory", "cc");
}
