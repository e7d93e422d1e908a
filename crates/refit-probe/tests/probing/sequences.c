// Adds within a restartable sequence (rseq(2)). A page fault interrupts each first attempt after
// the number is read, and its handler adds to the same number: an attempt that is not restarted
// loses that. It obeys commands, one per line, and answers with their results.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>

// t_add(number, area of the thread, page): returns 1 if it has added 1, and 0 if it was aborted.
// The abort handler needs a register that nothing else reads.
long t_add(volatile long *, struct rseq *, volatile char *);
__asm__(
	".text\n.p2align 4\n.globl t_add\n.type t_add,@function\nt_add:\n"
	"mov $7,%r8d\ntest %rdi,%rdi\nje 6f\n"
	"lea 1(%r8),%r9\nlea 9f(%rip),%rax\nmov %rax,8(%rsi)\n"
	"1: mov (%rdi),%rcx\nmov $20,%r10d\n"
	"5: dec %r10d\njne 5b\n"
	"cmpb $1,(%rdx)\ninc %rcx\nmov %rcx,(%rdi)\n"
	"2: lea -7(%r9),%rax\nlea (%rax),%rax\nret\n"
	".byte 0x0f,0xb9,0x3d\n.long 0x53053053\n"
	"4: lea -7(%r8),%rax\nlea (%rax),%rax\nret\n"
	"6: mov $-1,%rax\nret\n"
	".size t_add,.-t_add\n.p2align 4\n"
	".pushsection __rseq_cs,\"aw\"\n.p2align 5\n"
	"9: .long 0,0\n.quad 1b,2b-1b,4b\n.popsection\n");

static volatile char *page;
static volatile long number, handled;
static void fault(int signal) {
	number++, handled++;
	mprotect((void *)page, 4096, PROT_READ);
}

int main(void) {
	char line[100];
	long times;
	page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	signal(SIGSEGV, fault);
	struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
	printf("work %p\n", (void *)t_add);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "add %ld", &times) != 1) continue;
		long aborted = 0;
		number = handled = 0;
		for (long i = 0; i < times; i++) {
			mprotect((void *)page, 4096, PROT_NONE);
			while (!t_add(&number, area, page)) aborted++;
		}
		printf("%ld added, %ld aborted, %ld lost\n", times, aborted, times + handled - number);
		fflush(stdout);
	}
	return !__rseq_size;
}
