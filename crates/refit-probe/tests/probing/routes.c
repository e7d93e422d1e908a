// A program whose basic blocks and times are known. It obeys commands, one per line, and answers
// with their results.
#include <stdio.h>
#include <string.h>

long route(long), locked(long), constant(long);
// Six blocks with room for a jump each: an odd number skips the second, a small one the fifth.
__asm__(
	".text\n.p2align 4\n.globl route\n.type route,@function\nroute:\n"
	"mov %rdi,%rax\ntest $1,%dil\njne 2f\n"
	"lea 1(%rax),%rax\nadd $7,%rax\njmp 3f\n"
	"2: lea 2(%rax),%rax\nadd $9,%rax\n"
	"3: cmp $100,%rdi\njbe 4f\n"
	"imul $3,%rax,%rax\nsub $3,%rax\n"
	"4: lea 5(%rax),%rax\nret\n.size route,.-route\n.p2align 4\n");

// A function without a size. Another one follows at once, which has no name: hand-written code often
// has none.
long tight(long), (*nameless(void))(long);
__asm__(
	".text\n.p2align 4\n.globl tight\n.type tight,@function\ntight:\n"
	"mov %rdi,%rax\nadd $3,%rax\nret\n"
	".Lnameless: lea 1(%rdi),%rax\nadd $1,%rax\nret\n.p2align 4\n"
	".globl nameless\n.type nameless,@function\nnameless:\n"
	"lea .Lnameless(%rip),%rax\nret\n.size nameless,.-nameless\n.p2align 4\n");

// Jumps past a prefix, as the C library does in single-threaded programs.
long sum;
__asm__(
	".text\n.p2align 4\n.globl locked\n.type locked,@function\nlocked:\n"
	"mov %rdi,%rax\ntest %rdi,%rdi\nje 1f+1\n"
	"1: lock addq $1,sum(%rip)\nmov sum(%rip),%rax\nret\n.size locked,.-locked\n.p2align 4\n");

// Loads a constant from within an instruction that contains it, as V8's compilers do; the next
// block does so too.
__asm__(
	".text\n.p2align 4\n.globl constant\n.type constant,@function\nconstant:\n"
	"mov %rdi,%rax\ntest %rdi,%rdi\nje 2f\n"
	"1: movabs $0x1122334455667788,%rax\nadd %rdi,%rax\n"
	"2: add 1b+2(%rip),%rax\nret\n.size constant,.-constant\n.p2align 4\n");

#define APART __attribute__((noinline, noclone))
// Room for a jump, whatever the compiler generates.
#define ROOM __asm__ volatile(".fill 8, 1, 0x90")
volatile long sink;
APART static void spin(long turns) { for (long i = 0; i < turns; i++) sink += i; }
APART void least(long turns) { spin(turns); sink++; }
APART void most(long turns) { spin(turns * 50); sink++; }
APART void seldom(long turns) { spin(turns); sink++; }
void (*volatile pointer)(long) = least;
// Calls the first two functions always, and the third one if its second argument is a multiple of
// four; otherwise it jumps to where that call returns.
void middle(long turns, long round);
__asm__(
	".text\n.p2align 4\n.globl middle\n.type middle,@function\nmiddle:\n"
	"push %rbx\npush %rbp\nsub $8,%rsp\nmov %rdi,%rbx\nmov %rsi,%rbp\n"
	"call least\nmov %rbx,%rdi\nnop\nnop\n"
	"call most\nmov %rbx,%rdi\ntest $3,%ebp\njne 1f\n"
	"call seldom\n"
	"1: add $8,%rsp\npop %rbp\npop %rbx\nret\n.size middle,.-middle\n.p2align 4\n");
APART void outer(long turns) {
	for (long round = 0; round < 8; round++) {
		ROOM;
		middle(turns, round);
		ROOM;
		least(turns);
		ROOM;
	}
	ROOM;
	pointer(turns);
	ROOM;
	sink++;
}
APART long nested(long depth) {
	long below = depth > 0 ? nested(depth - 1) : 0;
	ROOM;
	spin(100);
	ROOM;
	return below + sink % 2;
}

// Waits within a call, for a line of its own.
__attribute__((noinline)) long asks(long n) {
	char line[64];
	puts("which?");
	fflush(stdout);
	if (n > 5) n += fgets(line, sizeof line, stdin) != NULL;
	return n;
}

int main(void) {
	char line[64];
	long n;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "route %ld", &n) == 1) printf("%ld\n", route(n));
		if (sscanf(line, "locked %ld", &n) == 1) printf("%ld\n", locked(n));
		if (sscanf(line, "tight %ld", &n) == 1) printf("%ld\n", tight(n) + nameless()(n));
		if (sscanf(line, "constant %ld", &n) == 1) printf("%lx\n", constant(n));
		if (sscanf(line, "asks %ld", &n) == 1) printf("%ld\n", asks(n));
		if (sscanf(line, "outer %ld", &n) == 1) outer(n), puts("done");
		if (sscanf(line, "nested %ld", &n) == 1) printf("%d\n", nested(n) >= 0);
		fflush(stdout);
	}
	return 0;
}
