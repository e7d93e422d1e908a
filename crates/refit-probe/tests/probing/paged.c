// Functions in more pages than are changed in one stop, which a thread calls one after the other:
// "begin" starts it, and "end" has it end after the last function, and answers with its rounds.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

__asm__(".altmacro\n"
	".macro paged n\n"
	".p2align 12\n"
	".globl paged_\\n\n"
	".type paged_\\n, @function\n"
	"paged_\\n: .cfi_startproc\n"
	"lea 1(%rdi), %rax\n"
	"lea 1(%rdi), %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".size paged_\\n, . - paged_\\n\n"
	".endm\n"
	".macro calls n\n"
	"call paged_\\n\n"
	".endm\n"
	".set i, 0\n"
	".rept 1300\n"
	"paged %i\n"
	".set i, i + 1\n"
	".endr\n"
	".p2align 12\n"
	".globl call_all\n"
	".type call_all, @function\n"
	"call_all: .cfi_startproc\n"
	".set i, 0\n"
	".rept 1300\n"
	"calls %i\n"
	".set i, i + 1\n"
	".endr\n"
	"ret\n"
	".cfi_endproc\n"
	".size call_all, . - call_all\n");
long call_all(long n);

static atomic_long rounds;
static atomic_int ends;

static void *run(void *argument) {
	do {
		call_all(1);
		rounds++;
	} while (!ends);
	return argument;
}

int main(void) {
	char line[100];
	pthread_t id;
	printf("work %p\n", (void *)call_all);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "begin\n")) {
			rounds = ends = 0;
			if (pthread_create(&id, 0, run, 0)) return 1;
			while (rounds < 10) {}
		} else {
			ends = 1;
			pthread_join(id, 0);
		}
		printf("%ld\n", (long)rounds);
		fflush(stdout);
	}
}
