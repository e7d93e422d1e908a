// Calls functions whose parameters are structures, numbers of all sizes and pointers, some of them
// on the stack. It obeys commands, one per line, and answers with numbers of calls.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define APART __attribute__((noinline, noclone))
static volatile long sink, calls;

enum color { RED, BLUE = 700 };
struct later;
struct list {
	struct list *next;
	char name[16];
	unsigned flag : 3;
	signed sign : 5;
	unsigned long wide : 40;
	short table[2][3];
	union {
		int number;
		unsigned char bytes[4];
	};
	double d;
	enum color color;
	const char *text;
	struct later *later;
};
typedef struct later {
	signed char small;
	unsigned short middle;
	struct list *lists[3];
} later_t;
struct big {
	long words[3];
};

APART long t_list(struct list *list, int index, double d, signed char narrow, later_t *later) {
	calls++;
	sink += index + narrow + (long)d + (later != 0);
	return list != 0;
}
APART long t_many(char a, float b, struct big big, int c, short d, unsigned e, long f, unsigned char g,
		  unsigned short h, struct list *list) {
	calls++;
	sink += a + (long)b + big.words[1] + c + d + e + f + g + h;
	return list != 0;
}
APART struct big t_result(struct list *list, long number) {
	calls++;
	struct big big = { { number, list != 0, sink } };
	return big;
}

static struct list second = { 0, "second", 5, -7, 0x123456789aul, { { 1, 2, 3 }, { -4, 5, -6 } },
			      { -1000 }, 2.5, BLUE, "a text", 0 };
static later_t later = { -3, 60000, { &second, 0, &second } };
static struct list first = { &second, "fifteen letters", 2, 15, 1, { { 0 } }, { 7 }, 0, RED, 0, &later };

int main(void) {
	char line[100];
	printf("work %p\n", (void *)t_list);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		calls = 0;
		if (!strcmp(line, "list\n")) {
			t_list(&first, -2, 1.5, -100, &later);
			t_list(&second, 1, 1.5, 100, 0);
		}
		if (!strcmp(line, "bad\n")) {
			static struct list broken = { (struct list *)8, "broken", .later = (later_t *)-1 };
			t_list(&broken, 1 << 28, 0, 0, 0);
			t_list((struct list *)16, 0, 0, 0, 0);
		}
		if (!strcmp(line, "many\n")) {
			struct big big = { { 10, -20, 30 } };
			t_many(-1, 1.5, big, -2, -3, 4000000000u, -5, 250, 65000, &first);
		}
		if (!strcmp(line, "result\n")) sink += t_result(&first, 9).words[0];
		printf("%ld\n", calls);
		fflush(stdout);
	}
}
