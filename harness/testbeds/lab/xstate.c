/*
 * Lets Debian's user-mode kernel 6.1 run on processors whose register state is larger than it knows.
 *
 * It keeps 2696 bytes of XSAVE state for each process (FP_SIZE, arch/x86/include/asm/ptrace-abi.h of um).
 * The machine's kernel refuses to set a state that is shorter than its own (xstateregs_set() in
 * arch/x86/kernel/fpu/regset.c), which with AMX is 11008 bytes: the first process dies at once.
 * This ptrace() pads such a request with the initial state of what the lab never uses.
 */
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define XSTATE_BV_OFFSET 512 /* XSAVE header, Intel SDM vol. 1, 13.4.2 */
#define AMX_COMPONENTS (3ULL << 17) /* XTILECFG and XTILEDATA */

static long set_xstate(pid_t pid, const struct iovec *given)
{
	static _Alignas(64) unsigned char state[1 << 16];
	static size_t full_size;
	struct iovec padded = { .iov_base = state, .iov_len = sizeof(state) };
	uint64_t components;

	if (!full_size) {
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &padded) < 0)
			return -1;
		full_size = padded.iov_len;
	}
	if (given->iov_len >= full_size)
		return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, given);

	memcpy(state, given->iov_base, given->iov_len);
	memset(state + given->iov_len, 0, full_size - given->iov_len);
	memcpy(&components, state + XSTATE_BV_OFFSET, sizeof(components));
	components &= ~AMX_COMPONENTS;
	memcpy(state + XSTATE_BV_OFFSET, &components, sizeof(components));
	padded.iov_len = full_size;
	return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &padded);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	pid_t pid;
	void *address, *data;
	long peeked, status;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE)
		return set_xstate(pid, data);
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		/* The system call stores the word, the C function returns it: ptrace(2), "C library/kernel differences". */
		status = syscall(SYS_ptrace, request, pid, address, &peeked);
		return status < 0 ? status : peeked;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
