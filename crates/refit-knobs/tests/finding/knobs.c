// A program with constants of all kinds, each in a function of its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALONE __attribute__((noinline, noclone))

static volatile int flag;
static volatile long sink;

// 200 rounds with pauses.
int table[128];

ALONE int spins(void) {
	for (int i = 0; i < 200; i++) {
		__builtin_ia32_pause();
		if (flag) return i;
	}
	return -1;
}

// 700 rounds with pauses, and the counter is not returned.
ALONE void waits(int number) {
	for (int i = 0; i < 700; i++) {
		__builtin_ia32_pause();
		table[number]++;
		if (flag) break;
	}
}

// 64 rounds; the number fits into one byte.
ALONE void rounds(void) {
	for (int i = 0; i != 64; i++) sink++;
}

// 3000 rounds by 3.
ALONE void threes(void) {
	for (long i = 0; i != 3000; i += 3) sink += i;
}

ALONE long limited(unsigned long n) {
	if (n > 5000) sink++;
	else sink--;
	return sink;
}

ALONE ssize_t reads(int from, char *into) {
	return read(from, into, 4096) + 1;
}

// A function of its own, with the name of one of the library.
ALONE long listen(long from, long most) {
	return sink += from * most;
}
ALONE long listens(void) {
	return listen(2, 2500) + 1;
}

// Reads four bytes, and all of them.
ALONE int four(int from, char *into) {
	if (read(from, into, 4) != 4) return -1;
	return 0;
}

ALONE void stores(long *to) {
	*to = 77777;
}

ALONE long returns(void) {
	sink++;
	return 4242;
}

ALONE int bounded(unsigned at) {
	if (at < 120) return table[at];
	return -2;
}

ALONE long related(unsigned long n) {
	if (n > 7000) sink++;
	else sink--;
	sink += 7001;
	return sink;
}

ALONE int equal(int n) {
	if (n == 314) sink++;
	else sink--;
	return (int)sink;
}

// A number that takes one byte, and one number on two ways to one use.
int small(unsigned long), twice(int, long);
__asm__(
	".text\n.globl small\n.type small,@function\nsmall:\n"
	"cmp $50,%rdi\nja 1f\nmov $10,%eax\nret\n1: mov $11,%eax\nret\n.size small,.-small\n"
	".globl twice\n.type twice,@function\ntwice:\n"
	"mov %rsi,%rax\ncmp $1,%edi\nje 1f\nmov $6400,%ecx\njmp 2f\n"
	"1: mov $6400,%ecx\nadd $2,%rax\n2: cmp %rcx,%rax\njl 3f\nmov $10,%eax\nret\n"
	"3: mov $11,%eax\nret\n.size twice,.-twice\n");

// Goes through 96 numbers.
void walks(int *);
__asm__(
	".text\n.globl walks\n.type walks,@function\nwalks:\n"
	"mov $96,%ecx\n1: movl $1,(%rdi)\nadd $4,%rdi\nsub $1,%ecx\njne 1b\nret\n.size walks,.-walks\n");

// Returns how many of 900 rounds are left.
extern int flag2;
int flag2 = 1, left(void);
__asm__(
	".text\n.globl left\n.type left,@function\nleft:\n"
	"mov $900,%eax\n1: pause\ncmpl $0,flag2(%rip)\nje 2f\nsub $1,%eax\njne 1b\n2: ret\n.size left,.-left\n");

// The same number as another one may come to its use.
ALONE void chosen(int n, long by) {
	long limit;
	if (n == 1) { sink += 2; limit = 6400; }
	else if (n == 2) { sink += 3; limit = 6400; }
	else { sink += 5; limit = by; }
	while (sink < limit) sink += 7;
}

int main(int count, char **arguments) {
	char line[8192];
	(void)arguments;
	while (fgets(line, sizeof line, stdin)) {
		long n = strtol(line + 1, NULL, 10);
		switch (*line) {
		case 's': printf("%d\n", spins()); break;
		case 'p': table[1] = 0; waits(1); printf("%d\n", table[1]); break;
		case 'W': walks(table); break;
		case 'L': printf("%d\n", left()); break;
		case 'r': sink = 0; rounds(); printf("%ld\n", sink); break;
		case 't': sink = 0; threes(); printf("%ld\n", sink); break;
		case 'l': sink = 0; printf("%ld\n", limited(n)); break;
		case 'R': printf("%zd\n", reads(0, line)); break;
		case 'n': printf("%ld\n", listens()); break;
		case 'f': printf("%d\n", four(0, line)); break;
		case 'S': { long to; stores(&to); printf("%ld\n", to); break; }
		case 'e': printf("%ld\n", returns()); break;
		case 'b': printf("%d\n", bounded(n)); break;
		case 'd': printf("%ld\n", related(n)); break;
		case 'q': printf("%d\n", equal(n)); break;
		case 'm': printf("%d\n", small(n)); break;
		case 'w': printf("%d\n", twice(n & 1, n & ~1)); break;
		case 'c': sink = 0; chosen(n, count); printf("%ld\n", sink); break;
		default: printf("begun\n");
		}
		fflush(stdout);
	}
	return 0;
}
