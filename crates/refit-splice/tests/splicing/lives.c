// Unusual programs: `lives KIND`. Each calls `work` all the time, and checks the results. A line
// `go` makes it change, which it answers with `gone`; on `end` it reports whether all results were
// right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int go, wrong, stop;
static volatile long turns;

__attribute__((noinline)) long work(long x) {
	__asm__ volatile("nop\nnop\nnop\nnop\nnop" : "+r"(x)::"memory");
	return 3 * x + 1;
}
static void once(void) {
	if (work(turns) != 3 * turns + 1) wrong = 1;
}
static void *works(void *unused) {
	while (!stop) once();
	return unused;
}

// The first thread ends before the others.
static void gone_when_first_has_ended(void) {
	char line[512] = "";
	for (go = 1; !strstr(line, ") Z "); usleep(1000)) {
		FILE *stat = fopen("/proc/self/stat", "r");
		if (!stat || !fgets(line, sizeof line, stat)) exit(4);
		fclose(stat);
	}
}

// A thread pointer of its own, with nothing mapped behind.
static void other_pointer(void) {
	unsigned long own, base, answer;
	char *area = mmap(0, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(area + 4096, 4096, PROT_READ | PROT_WRITE);
	base = (unsigned long)area + 2 * 4096 - 256;
	*(unsigned long *)base = base;
	__asm__ volatile("syscall" : "=a"(answer) : "a"(158L), "D"(0x1003L), "S"(&own) : "rcx", "r11", "memory");
	__asm__ volatile("syscall" : "=a"(answer) : "a"(158L), "D"(0x1002L), "S"(base) : "rcx", "r11", "memory");
	for (int i = 0; i < 1000; i++) once();
	__asm__ volatile("syscall" : "=a"(answer) : "a"(158L), "D"(0x1002L), "S"(own) : "rcx", "r11", "memory");
}

// Few calls are allowed from then on.
static void limits(void) {
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(5);
}

// Threads that a signal handler switches.
enum { THREADS = 8 };
static struct { greg_t registers[NGREG]; struct _libc_fpstate vectors; } threads[THREADS];
static int now;
static void body(void) { for (;;) once(); }
static void switches(int signal, siginfo_t *info, void *context) {
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs, segments = registers[REG_CSGSFS];
	memcpy(threads[now].registers, registers, sizeof threads[now].registers);
	now = (now + 1) % THREADS;
	memcpy(registers, threads[now].registers, sizeof threads[now].registers);
	registers[REG_CSGSFS] = segments;
	(void)signal, (void)info;
}
// For a while no memory holds the program counter of the thread that is suspended now.
static void holds(int signal, siginfo_t *info, void *context) {
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs, segments = registers[REG_CSGSFS];
	greg_t counter = registers[REG_RIP];
	int next = (now + 1) % THREADS;
	memcpy(threads[now].registers, registers, sizeof threads[now].registers);
	threads[now].registers[REG_RIP] = 0;
	memcpy(registers, threads[next].registers, sizeof threads[next].registers);
	registers[REG_CSGSFS] = segments;
	for (int i = 0; i < 900000; i++) __asm__ volatile("" : "+r"(counter));
	threads[now].registers[REG_RIP] = counter;
	now = next;
	(void)signal, (void)info;
}
// The context is saved in another page each time, in more memory than a stop searches.
enum { PAGES = 40960, PAGE = 4096 };
static char *wide;
static greg_t *saved[THREADS];
static void spreads(int signal, siginfo_t *info, void *context) {
	static unsigned long count;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs, segments = registers[REG_CSGSFS];
	// Each page in turn, far from the last one.
	saved[now] = (greg_t *)(wide + count++ * 12347 % PAGES * PAGE);
	memcpy(saved[now], registers, sizeof threads[now].registers);
	now = (now + 1) % THREADS;
	memcpy(registers, saved[now], sizeof threads[now].registers);
	memset(saved[now], 0, sizeof threads[now].registers);
	registers[REG_CSGSFS] = segments;
	(void)signal, (void)info;
}
static void *switched(void *handler) {
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	long often = handler == (void *)holds ? 3000 : 500;
	struct itimerval interval = {{0, often}, {0, often}};
	sigset_t alarm;
	for (int i = 1; i < THREADS; i++) {
		threads[i].registers[REG_RIP] = (greg_t)body;
		threads[i].registers[REG_RSP] = ((greg_t)malloc(65536) + 65536 - 64) / 16 * 16 - 8;
		threads[i].registers[REG_EFL] = 0x202;
		saved[i] = threads[i].registers;
	}
	sigaction(SIGALRM, &action, 0);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarm, 0);
	setitimer(ITIMER_REAL, &interval, 0);
	body();
	return 0;
}

// A handler that runs until it is told to return, and makes no call.
static volatile int in_handler;
static void runs(int signal) {
	for (in_handler = 1; in_handler;) {}
	(void)signal;
}
static void goes_in_or_out(pthread_t thread) {
	if (in_handler) {
		in_handler = 0;
		return;
	}
	signal(SIGUSR1, runs);
	pthread_kill(thread, SIGUSR1);
	while (!in_handler) {}
}

// The C library leaves on the stack what it tells the kernel of a handler: with the address of the code that ends it, where
// a frame begins.
static void *installs(void *unused) {
	volatile long left[64] = {0};
	signal(SIGUSR1, runs);
	syscall(SYS_rt_sigaction, SIGUSR1, NULL, left, 8);
	while (!stop) once();
	return left[0] ? unused : NULL;
}

// Faults and traps, whose handlers check everything that they are told.
static char *volatile page;
static volatile long traps;
static void fault(int signal, siginfo_t *info, void *context) {
	if (info->si_code != SEGV_ACCERR || (char *)info->si_addr != page + 8) wrong = 1;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
	(void)signal, (void)context;
}
static void trap(int signal, siginfo_t *info, void *context) {
	if (info->si_code != SI_TKILL && info->si_code != SI_KERNEL) wrong = 1;
	traps++;
	(void)signal, (void)context;
}
static void *faults(void *unused) {
	struct sigaction on_fault = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
	struct sigaction on_trap = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
	page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &on_fault, 0);
	sigaction(SIGTRAP, &on_trap, 0);
	while (!stop) {
		mprotect(page, 4096, PROT_READ);
		page[8] = 1;
		long before = traps;
		raise(SIGTRAP);
		__asm__ volatile("int3");
		if (traps != before + 2) wrong = 1;
		once();
	}
	return unused;
}

// Calls that a stop cuts short or ends: the caller must not notice.
enum { LONG = 1 << 18 };
static int ends[2], pair[2], limited[2];
static void all(int fd, char *bytes, size_t size, unsigned from) {
	for (size_t at = 0; at < size; at++) bytes[at] = (char)((from + at) % 251);
	if (write(fd, bytes, size) != (ssize_t)size) wrong = 1;
}
static void *writes(void *unused) {
	static char bytes[LONG];
	for (unsigned next = 0; !stop; next += LONG) all(ends[1], bytes, LONG, next), once();
	return unused;
}
static void *reads(void *unused) {
	unsigned char part[4096];
	for (unsigned next = 0;; usleep(100)) {
		ssize_t size = read(ends[0], part, sizeof part);
		for (ssize_t at = 0; at < size; at++, next++) if (part[at] != next % 251) wrong = 1;
	}
	return unused;
}
static void *receives(void *unused) {
	static char bytes[32000];
	while (!stop) {
		if (recv(pair[0], bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) wrong = 1;
		if (recv(limited[0], bytes, 1, 0) != 1) wrong = 1;
		struct timeval time = {0, 3000};
		struct timespec short_time = {0, 3000000};
		if (select(0, 0, 0, 0, &time) || nanosleep(&short_time, 0)) wrong = 1;
	}
	return unused;
}
static void *sends(void *unused) {
	static char bytes[1000];
	for (int i = 1;; i++) {
		usleep(300);
		if (write(pair[1], bytes, sizeof bytes) != sizeof bytes) wrong = 1;
		if (i % 32 == 0) usleep(3000), write(limited[1], "", 1);
	}
	return unused;
}
static void transfers(pthread_t *other) {
	struct timeval limit = {20, 0};
	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || socketpair(AF_UNIX, SOCK_STREAM, 0, limited)) exit(7);
	setsockopt(limited[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	void *(*parts[])(void *) = {writes, reads, receives, sends};
	for (int i = 0; i < 4; i++) pthread_create(other, 0, parts[i], 0);
}

static int shares(void *unused) {
	works(unused);
	return 0;
}

static pthread_t other;
static void begin(const char *kind) {
	if (!strcmp(kind, "shares")) {
		char *stack = malloc(1 << 20);
		if (clone(shares, stack + (1 << 20) - 64, CLONE_VM | SIGCHLD, 0) < 0) exit(6);
	} else if (!strcmp(kind, "switches") || !strcmp(kind, "holds") || !strcmp(kind, "spreads")) {
		if (!strcmp(kind, "spreads")) {
			wide = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			for (size_t i = 0; i < PAGES; i++) wide[i * PAGE + PAGE - 1] = 1;
		}
		sigset_t alarm;
		sigemptyset(&alarm);
		sigaddset(&alarm, SIGALRM);
		pthread_sigmask(SIG_BLOCK, &alarm, 0);
		pthread_create(&other, 0, switched,
			       !strcmp(kind, "switches") ? switches : !strcmp(kind, "holds") ? holds : spreads);
	} else if (!strcmp(kind, "transfers")) {
		transfers(&other);
	} else if (!strcmp(kind, "installs")) {
		pthread_create(&other, 0, installs, 0);
	} else if (!strcmp(kind, "faults")) {
		pthread_create(&other, 0, faults, 0);
	} else if (!strcmp(kind, "leader") || !strcmp(kind, "runs")) {
		pthread_create(&other, 0, works, 0);
	}
}

static const char *what;
static void *library;
static void *listens(void *unused) {
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "go\n")) {
			if (!strcmp(what, "leader")) gone_when_first_has_ended();
			if (!strcmp(what, "pointer")) other_pointer();
			if (!strcmp(what, "runs")) goes_in_or_out(other);
			if (library) dlclose(library);
			if (!strcmp(what, "limits")) {
				limits();
				write(1, "gone\n", 5);
				for (long i = 0; i < 1000; i++) once();
				continue;
			}
			puts("gone");
		} else {
			stop = 1;
			char text[8] = "right\n", bad[8] = "wrong\n";
			write(1, wrong ? bad : text, 6);
			continue;
		}
		fflush(stdout);
	}
	_exit(0);
	return unused;
}

int main(int count, char **arguments) {
	pthread_t reader;
	void *address = (void *)work;
	what = arguments[1];
	if (count > 2) {
		library = dlopen(arguments[2], RTLD_NOW);
		address = library ? dlsym(library, "lent") : 0;
	}
	begin(what);
	printf("work %p\n", address);
	fflush(stdout);
	if (strcmp(what, "leader")) listens(0);
	pthread_create(&reader, 0, listens, 0);
	while (!go) once();
	pthread_exit(0);
}
