/*
 * Holds a pattern in every vector register, and looks whether it is still there, for SECONDS.
 *
 * usage: vector_registers SECONDS. Prints the kind of registers, and how often it looked. Ends with status 1
 * at the first difference. Between two looks it spins, so that interrupts find it, and yields, so that other
 * processes do.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REGISTERS 32
#define WIDEST_BYTES 64
#define LOW "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define HIGH "16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

/* sched_yield(2) by itself: a C function might use these registers. */
#define HOLD \
	"mov $20, %%r9d\n" \
	"1: mov $20000, %%r8d\n" \
	"2: dec %%r8d\n" \
	"jnz 2b\n" \
	"mov $24, %%eax\n" \
	"syscall\n" \
	"dec %%r9d\n" \
	"jnz 1b\n"
#define TAKEN \
	"rax", "rcx", "r8", "r9", "r11", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
	"xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static void hold_xmm(const void *pattern, void *found)
{
	asm volatile(
		".irp n," LOW "\n movdqu \\n*64(%[p]), %%xmm\\n\n .endr\n"
		HOLD
		".irp n," LOW "\n movdqu %%xmm\\n, \\n*64(%[f])\n .endr\n"
		: : [p] "r"(pattern), [f] "r"(found) : TAKEN);
}

static void hold_ymm(const void *pattern, void *found)
{
	asm volatile(
		".irp n," LOW "\n vmovdqu \\n*64(%[p]), %%ymm\\n\n .endr\n"
		HOLD
		".irp n," LOW "\n vmovdqu %%ymm\\n, \\n*64(%[f])\n .endr\n"
		"vzeroupper\n"
		: : [p] "r"(pattern), [f] "r"(found) : TAKEN);
}

static void hold_zmm(const void *pattern, void *found)
{
	asm volatile(
		".irp n," LOW "," HIGH "\n vmovdqu64 \\n*64(%[p]), %%zmm\\n\n .endr\n"
		".irp n,1,2,3,4,5,6,7\n kmovw \\n*64(%[p]), %%k\\n\n .endr\n"
		HOLD
		".irp n," LOW "," HIGH "\n vmovdqu64 %%zmm\\n, \\n*64(%[f])\n .endr\n"
		/* The first bytes again, this time from the masks. */
		".irp n,1,2,3,4,5,6,7\n kmovw %%k\\n, \\n*64(%[f])\n .endr\n"
		"vzeroupper\n"
		: : [p] "r"(pattern), [f] "r"(found) : TAKEN);
}

int main(int argc, char **argv)
{
	static unsigned char pattern[REGISTERS * WIDEST_BYTES], found[REGISTERS * WIDEST_BYTES];
	void (*hold)(const void *, void *) = hold_xmm;
	const char *kind = "xmm";
	int registers = 16, width = 16;
	uint32_t control, control_found;
	unsigned long looks = 0;
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);

	if (__builtin_cpu_supports("avx512f"))
		hold = hold_zmm, kind = "zmm", registers = 32, width = 64;
	else if (__builtin_cpu_supports("avx2"))
		hold = hold_ymm, kind = "ymm", width = 32;
	/* Each process rounds in its own way, and has its own pattern. */
	control = 0x1f80 | (getpid() & 3) << 13;
	asm volatile("ldmxcsr %0" : : "m"(control));
	srandom(getpid());
	do {
		for (size_t i = 0; i < sizeof(pattern); i++)
			pattern[i] = random();
		memset(found, 0, sizeof(found));
		hold(pattern, found);
		asm volatile("stmxcsr %0" : "=m"(control_found));
		looks++;
		for (int i = 0; i < registers; i++) {
			if (memcmp(pattern + i * WIDEST_BYTES, found + i * WIDEST_BYTES, width)) {
				printf("%s%d lost its content at look %lu\n", kind, i, looks);
				return 1;
			}
		}
		/* But for the flags of exceptions (Intel SDM vol. 1, 10.2.3). */
		if ((control_found ^ control) & ~0x3f) {
			printf("MXCSR was %x, is %x at look %lu\n", control, control_found, looks);
			return 1;
		}
	} while (time(NULL) < end);
	printf("%s %lu\n", kind, looks);
	return 0;
}
