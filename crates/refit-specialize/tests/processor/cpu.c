// Runs single instructions: each line has its bytes in hexadecimal digits, 16 registers in the order of their numbers, and the
// flags; the answer has the registers and flags behind it. The first line that it writes is the address of some memory.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct state { uint64_t general[16], flags; };
extern void run_one(struct state *, void *);
__asm__(".text\n.globl run_one\nrun_one:\n"
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\nsub $24, %rsp\nmov %rdi, 0(%rsp)\nmov %rsi, 8(%rsp)\n"
	"mov 0(%rdi), %rax\nmov 8(%rdi), %rcx\nmov 16(%rdi), %rdx\nmov 24(%rdi), %rbx\nmov 40(%rdi), %rbp\nmov 48(%rdi), %rsi\n"
	"mov 64(%rdi), %r8\nmov 72(%rdi), %r9\nmov 80(%rdi), %r10\nmov 88(%rdi), %r11\nmov 96(%rdi), %r12\nmov 104(%rdi), %r13\n"
	"mov 112(%rdi), %r14\nmov 120(%rdi), %r15\npush 128(%rdi)\npopfq\nmov 56(%rdi), %rdi\n"
	"call *8(%rsp)\n"
	"push %rdi\npushfq\nmov 16(%rsp), %rdi\n"
	"mov %rax, 0(%rdi)\nmov %rcx, 8(%rdi)\nmov %rdx, 16(%rdi)\nmov %rbx, 24(%rdi)\nmov %rbp, 40(%rdi)\nmov %rsi, 48(%rdi)\n"
	"mov %r8, 64(%rdi)\nmov %r9, 72(%rdi)\nmov %r10, 80(%rdi)\nmov %r11, 88(%rdi)\nmov %r12, 96(%rdi)\nmov %r13, 104(%rdi)\n"
	"mov %r14, 112(%rdi)\nmov %r15, 120(%rdi)\npop 128(%rdi)\npop 56(%rdi)\n"
	"add $24, %rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n");

int main(void) {
	unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED || memory == MAP_FAILED) return 1;
	for (int i = 0; i < 4096; i++) memory[i] = (unsigned char)(i * 167 + (i >> 8) * 13 + 5);
	printf("%lu\n", (unsigned long)memory);
	fflush(stdout);
	char text[64];
	while (scanf("%63s", text) == 1) {
		struct state state;
		size_t length = strlen(text) / 2;
		for (size_t i = 0; i < length; i++) {
			unsigned byte;
			sscanf(&text[2 * i], "%2x", &byte);
			code[i] = (unsigned char)byte;
		}
		code[length] = 0xc3;
		for (int i = 0; i < 16; i++)
			if (scanf("%lu", &state.general[i]) != 1) return 2;
		if (scanf("%lu", &state.flags) != 1) return 2;
		state.flags = (state.flags & 0x8d5) | 0x202;
		uint64_t stack = state.general[4];
		run_one(&state, code);
		state.general[4] = stack;
		for (int i = 0; i < 16; i++) printf("%lu ", state.general[i]);
		printf("%lu\n", state.flags);
		fflush(stdout);
	}
	return 0;
}
