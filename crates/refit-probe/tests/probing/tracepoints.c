// Passes static tracepoints, one of them only while somebody listens, and another one in two places.
// It obeys commands, one per line, and answers with numbers of calls.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
static volatile long sink, calls;
// Tools raise it while they listen.
__attribute__((section(".probes"), used)) volatile unsigned short guarded_semaphore;

// The note of a tracepoint as tools read it: owner, place, base, semaphore, names, arguments.
#define TRACEPOINT(NAME, SEMAPHORE, ARGUMENTS, ...)                                                \
	__asm__ volatile("990: nop\n"                                                              \
			 ".pushsection .note.stapsdt, \"\", \"note\"\n"                            \
			 ".balign 4\n"                                                             \
			 ".4byte 992f - 991f, 994f - 993f, 3\n"                                    \
			 "991: .asciz \"stapsdt\"\n"                                               \
			 "992: .balign 4\n"                                                        \
			 "993: .8byte 990b, 0, " SEMAPHORE "\n"                                    \
			 ".asciz \"app\"\n"                                                        \
			 ".asciz \"" NAME "\"\n"                                                   \
			 ".asciz \"" ARGUMENTS "\"\n"                                              \
			 "994: .balign 4\n"                                                        \
			 ".popsection" ::__VA_ARGS__)

struct item {
	int number;
	char name[12];
};

APART long t_plain(int number, long wide, short narrow, const char *text, double real) {
	volatile long stored = wide * 2;
	volatile signed char small = -3;
	calls++;
	TRACEPOINT("plain", "0", "-4@%0 8@%1 -2@%2 8@%3 -1@%4 8@$-7 8f@%5 1@%6", "r"(number), "m"(stored),
		   "r"(narrow), "r"(text), "m"(small), "x"(real), "Q"((unsigned char)number));
	return sink += number;
}
APART long t_guarded(struct item *item) {
	calls++;
	if (guarded_semaphore) {
		sink += 1000;
		TRACEPOINT("guarded", "guarded_semaphore", "8@%0", "r"(item));
	}
	return sink;
}
APART long t_many(long one, long two, long three, long four, long five, long six, long seven, int eight) {
	calls++;
	if (guarded_semaphore) TRACEPOINT("also", "guarded_semaphore", "8@%0", "r"(one));
	return sink += one + two + three + four + five + six + seven + eight;
}
APART void t_twice(long number) {
	calls++;
	TRACEPOINT("twice", "0", "8@%0", "r"(number));
	sink += number;
	TRACEPOINT("twice", "0", "8@%0", "r"(number + 1));
}

int main(void) {
	char line[100];
	struct item item = { 4711, "an item" };
	printf("work %p\n", (void *)t_plain);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		calls = 0;
		if (!strcmp(line, "plain\n")) t_plain(-5, 21, -300, "a text", 2.5);
		if (!strcmp(line, "guarded\n")) t_guarded(&item);
		if (!strcmp(line, "many\n")) t_many(1, 2, 3, 4, 5, 6, 7, -8);
		if (!strcmp(line, "twice\n")) t_twice(10);
		printf("%d\n", guarded_semaphore);
		fflush(stdout);
	}
}
