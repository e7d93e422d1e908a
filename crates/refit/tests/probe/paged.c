/* Two threads that call functions in more pages than refit changes in one stop, one after the other. To a
 * line it answers "right" once both have gone through all of them again; to "end", with the rounds of both. */
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
	"lea 1(%rdi), %rdi\n"
	"lea 1(%rdi), %rdi\n"
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
	"mov %rdi, %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".size call_all, . - call_all\n");
long call_all(long n);

static atomic_long rounds[2];
static atomic_int ends, wrong;

static void *run(void *own) {
	do {
		long begin = ++*(atomic_long *)own;
		if (call_all(begin) != begin + 2 * 1300) wrong = 1;
	} while (!ends);
	return 0;
}

static void wait_for(int number) {
	long begin = rounds[number];
	while (rounds[number] < begin + 2) {}
}

int main(void) {
	char line[100];
	pthread_t ids[2];
	for (int number = 0; number < 2; number++)
		if (pthread_create(&ids[number], 0, run, &rounds[number])) return 1;
	puts("begun");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "end\n")) {
			ends = 1;
			pthread_join(ids[0], 0);
			pthread_join(ids[1], 0);
			printf("%ld\n", rounds[0] + rounds[1]);
		} else {
			wait_for(0);
			wait_for(1);
			puts(wrong ? "wrong" : "right");
		}
		fflush(stdout);
	}
}
