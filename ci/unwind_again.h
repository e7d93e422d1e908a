// Included by unwind.c: examines stacks at breakpoints, in a program that runs by itself (UNWIND_AGAIN).

// An instruction to be examined, and the byte that the breakpoint has replaced.
struct again { uintptr_t counter; uint8_t byte; int hits; } *again, agains[256];
static int again_count, own_memory = -1;
static void set_byte(uintptr_t address, uint8_t byte) {
	if (pwrite(own_memory, &byte, 1, (off_t)address) != 1) abort();
}

// Examines the stack before and after an instruction with a breakpoint.
static void broke(ucontext_t *context) {
	greg_t *registers = context->uc_mcontext.gregs;
	int differs;
	if (again && syscall(SYS_gettid) == first_thread) {
		unwind(context, &stacks[1]);
		enum kind kind = kind_of((const uint8_t *)again->counter);
		bool right = follows(kind == JUMP ? PLAIN : kind, &stacks[0], &stacks[1], registers, &differs);
		if (!right) say(log_file, "again %lx\n", again->counter);
		else if (++again->hits < 10000) set_byte(again->counter, 0xcc);
		registers[REG_EFL] &= ~TRAP_FLAG;
		again = NULL;
		return;
	}
	registers[REG_RIP]--;
	for (int at = 0; at < again_count; at++) {
		if (agains[at].counter != (uintptr_t)registers[REG_RIP]) continue;
		set_byte(agains[at].counter, agains[at].byte);
		// Of other threads, nothing is known.
		if (syscall(SYS_gettid) != first_thread) return;
		again = &agains[at];
		unwind(context, &stacks[0]);
		registers[REG_EFL] |= TRAP_FLAG;
	}
}

static void read_again(const char *path) {
	FILE *file = fopen(path, "r");
	char line[1024];
	own_memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	while (file && fgets(line, sizeof line, file) && again_count < 256) {
		uintptr_t counter = 0;
		uint8_t byte;
		if (sscanf(line, "own %*x in %*x, after %lx in", &counter) != 1 || !put(&told, counter)) continue;
		// It may be in a library that is loaded later.
		if (pread(own_memory, &byte, 1, (off_t)counter) == 1) agains[again_count++] = (struct again){counter, byte, 0};
	}
	if (file) fclose(file);
	for (int at = 0; at < again_count; at++) set_byte(agains[at].counter, 0xcc);
}
