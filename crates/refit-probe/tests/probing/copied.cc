// A program whose functions with names that begin with `t_` are copied as a whole. Each does
// something that goes wrong if control, or an address on a stack, is not as it would be without the
// copy.
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, noipa))
#define FUNC(name) ".p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ",.-" #name "\n"

extern "C" {
long t_short(long), t_loops(long), t_zero(long), t_asks(long), t_sometimes(long), t_lock(long, long *), t_here(long);
long t_own(long), t_traps(long), t_red(long), t_one(long), t_inner(long), t_outer(long), t_sleeps(const timespec *);
}
__asm__(".text\n"
	// Blocks of one and two bytes.
	FUNC(t_short) "mov %rdi,%rax\n1: dec %rax\ntest $7,%al\njne 1b\nret\n" END(t_short)
	// Jumps that have no long form, out of a block that grows, and flags that `loop` leaves alone.
	FUNC(t_loops) "mov $5,%ecx\nxor %eax,%eax\nstc\n1: adc %rdi,%rax\nloop 1b\njrcxz 2f\nud2\n2: ret\n" END(t_loops)
	FUNC(t_zero) "mov %rdi,%rcx\njrcxz 1f\nmov $1,%eax\nret\n1: mov $2,%eax\nret\n" END(t_zero)
	// A system call whose return is a place of two bytes.
	FUNC(t_asks) "mov $39,%eax\nsyscall\n1: dec %rdi\njg 1b\nret\n" END(t_asks)
	// A system call that the kernel restarts if its thread was stopped.
	FUNC(t_sleeps) "mov $35,%eax\nxor %esi,%esi\nsyscall\nneg %rax\nret\n" END(t_sleeps)
	// Left by a conditional jump.
	FUNC(t_sometimes) "mov %rdi,%rax\ntest $1,%dil\njne t_short\nadd $1,%rax\ntest $2,%dil\nje t_zero\nret\n" END(t_sometimes)
	// A jump past the prefix.
	FUNC(t_lock) "test %rdi,%rdi\nje 1f+1\n1: lock incq (%rsi)\nmov (%rsi),%rax\nret\n" END(t_lock)
	// A call of itself, calls with nothing between, a call of the next instruction.
	FUNC(t_here) "push %rbx\nmov %rdi,%rbx\ncall 1f\n1: pop %rax\nlea 1b(%rip),%rcx\nsub %rcx,%rax\nmov %rbx,%rdi\n"
	"call t_short\ncall t_one\ncall t_one\nadd %rbx,%rax\npop %rbx\nret\n" END(t_here)
	FUNC(t_one) "inc %rax\nret\n" END(t_one)
	// Its own address, as it is in the program.
	FUNC(t_own) "lea t_own(%rip),%rax\nlea 1f(%rip),%rdx\njmp 2f\n1: ud2\n2: sub %rdx,%rax\ntest %rdi,%rdi\nje 3f\nneg %rax\n3: ret\n" END(t_own)
	// Uses memory below the stack pointer of a leaf, with flags that live long.
	FUNC(t_red) "mov %rdi,-8(%rsp)\nmov %rdi,-64(%rsp)\ncmp $3,%rdi\nje 1f\nnop\n1: lea 1(%rdi),%rax\nja 2f\nadd -8(%rsp),%rax\n"
	"2: add -64(%rsp),%rax\nret\n" END(t_red)
	// Entered in the middle by another one, and from within.
	FUNC(t_inner) "mov %rdi,%rax\n.Lmiddle: dec %rdi\nadd %rdi,%rax\ntest $3,%dil\njne .Lmiddle\nret\n" END(t_inner)
	FUNC(t_outer) "test $1,%dil\nje t_inner\nlea 5(%rdi),%rax\ntest $2,%dil\nje .Lmiddle\nret\n" END(t_outer)
	// Traps on purpose; the handler steps over it.
	FUNC(t_traps) "xor %eax,%eax\ntest %rdi,%rdi\nje 1f\nud2\n1: add $3,%rax\nret\n" END(t_traps));

static volatile int stop, wrong, ticks, destroyed;
static void tick(int) { ticks++; }
static void trapped(int, siginfo_t *, void *context) {
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	registers[REG_RAX] = (greg_t)registers[REG_RIP] - (greg_t)t_traps;
	registers[REG_RIP] += 2;
}

struct Last { ~Last() { __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED); } };

APART long t_switch(long n) {
	switch (n % 9) {
	case 0: return n + 11;
	case 1: return t_one(n * 3);
	case 2: return n ^ 0x55;
	case 3: return n - 7;
	case 4: return t_short(n | 7);
	case 5: return n << 2;
	case 6: return n | 1024;
	case 7: return ~n;
	default: return 0;
	}
}
APART long t_recurses(long n) { return n < 2 ? n : t_recurses(n - 1) + t_recurses(n - 2); }
APART void t_throws(long n) {
	Last last;
	if (n % 3 == 1) throw n;
	if (n % 3 == 2) throw "text";
}
APART long t_through(long n) {
	Last last;
	try {
		t_throws(n);
	} catch (const char *) {
		if (n % 2) throw;
		return n + 1;
	}
	return n + 2;
}
APART long t_catches(long n) {
	try {
		return t_through(n);
	} catch (long thrown) {
		return thrown * 5;
	} catch (...) {
		return 17;
	}
}
static thread_local jmp_buf back;
APART void t_jumps(long n) { if (n % 2) longjmp(back, (int)(n % 100) + 1); }
APART long t_sets(long n) {
	volatile long kept = n;
	int how = setjmp(back);
	if (how) return kept + how;
	t_jumps(n);
	return kept - 1;
}
// Walks the stack as a debugger would.
APART long t_looks(long n) {
	void *frames[16];
	int count = backtrace(frames, 16);
	unsigned long sum = (unsigned long)n;
	for (int i = 0; i < count && i < 4; i++) sum = sum * 31 + (unsigned long)frames[i];
	return (long)(sum % 1000003);
}
APART long t_looked(long n) { return t_looks(n + 1) * 2 + 1; }
APART double t_floats(double x, int n) {
	double sum = 0;
	for (int i = 1; i <= n; i++) sum += i % 2 ? x / i : -x / i;
	return sum;
}
static long (*volatile through[])(long) = {t_short, t_zero, t_recurses, t_switch};
APART long t_points(long n) { return through[n % 4](n % 12 + 8) * 2; }
APART long t_after(long n) { return n % 5 ? t_switch(n + 1) : t_recurses(n % 7); }

APART static long once(long i) {
	long word = i, all = 0;
	all += t_short(i) * 3 + t_loops(i) + t_zero(i % 2) + t_sometimes(i) + t_lock(i % 2, &word);
	all += t_here(i) + t_own(i % 2) + t_red(i % 6) + t_switch(i) + t_recurses(i % 9) + t_catches(i);
	all += t_sets(i) + (long)(t_floats(1.5, (int)(i % 20)) * 1e6) + t_points(i) + t_after(i) + t_inner(i) + t_outer(i);
	if (t_asks(i % 3) != getpid()) wrong = 1;
	timespec little = {0, 50000};
	long slept = i % 32 ? 0 : t_sleeps(&little);
	if (slept && slept != EINTR) wrong = 1;
	if (i % 16 == 0) all += t_looked(i) + t_traps(1) + t_traps(0);
	return all % 1000000007;
}
APART static void *counted(void *n) {
	long sum = 0;
	for (long i = 0; i < (long)n; i++) sum += once(i);
	return (void *)sum;
}
static void *endless(void *sum) {
	while (!stop) if (counted((void *)64) != sum) wrong = 1;
	return nullptr;
}
APART long t_waits(long n) {
	Last last;
	for (;;) { pause(); if (n++ == -1) return n; }
}
static void *cancelled(void *n) { return (void *)t_waits((long)n); }
APART long t_holds(long n, char *line, int size) {
	puts("held");
	fflush(stdout);
	while (!fgets(line, size, stdin)) clearerr(stdin);
	return n * 3 + (long)strlen(line);
}

int main(void) {
	char line[64];
	pthread_t threads[2];
	struct sigaction traps = {};
	traps.sa_sigaction = trapped;
	traps.sa_flags = SA_SIGINFO;
	sigaction(SIGILL, &traps, nullptr);
	signal(SIGALRM, tick);
	signal(SIGTRAP, tick);
	once(1);
	printf("work %p\n", (void *)t_short);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long n;
		if (sscanf(line, "work %ld", &n) == 1) {
			long sum = 0;
			void *part;
			destroyed = 0;
			for (int i = 0; i < 2; i++) pthread_create(&threads[i], nullptr, counted, (void *)n);
			for (int i = 0; i < 2; i++) pthread_join(threads[i], &part), sum += (long)part;
			printf("%ld %d%s\n", sum, destroyed, wrong ? " wrong" : "");
		} else if (!strcmp(line, "begin\n")) {
			struct itimerval often = {{0, 1000}, {0, 1000}}, never = {};
			void *sum = counted((void *)64);
			for (int i = 0; i < 2; i++) pthread_create(&threads[i], nullptr, endless, sum);
			setitimer(ITIMER_REAL, &often, nullptr);
			puts("begun");
			fflush(stdout);
			while (!fgets(line, sizeof line, stdin)) clearerr(stdin);
			setitimer(ITIMER_REAL, &never, nullptr);
			stop = 1;
			for (int i = 0; i < 2; i++) pthread_join(threads[i], nullptr);
			stop = 0;
			// A tracer that single-steps a thread removes the handler if the thread blocks the signal.
			if (signal(SIGTRAP, tick) != tick) wrong = 1;
			puts(wrong ? "wrong" : ticks ? "right" : "no ticks");
		} else if (!strcmp(line, "wait\n")) {
			void *result;
			destroyed = 0;
			pthread_create(&threads[0], nullptr, cancelled, (void *)1);
			puts("begun");
			fflush(stdout);
			while (!fgets(line, sizeof line, stdin)) clearerr(stdin);
			pthread_cancel(threads[0]);
			pthread_join(threads[0], &result);
			printf("%d %d\n", result == PTHREAD_CANCELED, destroyed);
		} else if (sscanf(line, "hold %ld", &n) == 1) {
			n = t_holds(n, line, sizeof line);
			printf("%ld\n", n);
		}
		fflush(stdout);
	}
	return 0;
}
