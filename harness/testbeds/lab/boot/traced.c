/*
 * A user-mode kernel traces its processes, and the machine tells it what happens to them. Two things it does not know.
 *
 * Job control. If somebody stops all processes of the lab (SIGSTOP) and lets them go on (SIGCONT), each signal stops a
 * traced process and is told to the kernel, which panics at every signal but its own (userspace() and
 * wait_stub_done(), arch/um/os-Linux/skas/process.c). Here the process goes on without the signal, in the way in which
 * the kernel let it run last, and the kernel waits on. A process that it has not yet let run stops itself once it is set
 * up (start_userspace()): SIGSTOP from anybody else comes too early for the kernel, which would run a process that has
 * no code yet.
 *
 * Register state that is larger than it knows. Debian's kernel 6.1 keeps 2696 bytes of XSAVE state for each process
 * (FP_SIZE, arch/x86/include/asm/ptrace-abi.h of um). The machine's kernel refuses to set a state that is shorter than
 * its own (xstateregs_set() in arch/x86/kernel/fpu/regset.c), which with AMX is 11008 bytes: the first process dies at
 * once. Here such a request is padded with the initial state of what the lab never uses.
 *
 * ptrace(2), signal(7).
 */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define XSTATE_BV_OFFSET 512 /* XSAVE header, Intel SDM vol. 1, 13.4.2 */
#define AMX_COMPONENTS (3ULL << 17) /* XTILECFG and XTILEDATA */

/* Each of the kernel's processors is a thread: the process that it let run last, and how. */
static __thread __attribute__((tls_model("initial-exec"))) pid_t let_run;
static __thread __attribute__((tls_model("initial-exec"))) enum __ptrace_request let_run_by;

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

	if (request == PTRACE_CONT || request == PTRACE_SYSCALL || request == PTRACE_SINGLESTEP || request == PTRACE_SYSEMU ||
	    request == PTRACE_SYSEMU_SINGLESTEP) {
		let_run = pid;
		let_run_by = request;
	}
	if (request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE)
		return set_xstate(pid, data);
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		/* The system call stores the word, the C function returns it: ptrace(2), "C library/kernel differences". */
		status = syscall(SYS_ptrace, request, pid, address, &peeked);
		return status < 0 ? status : peeked;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}

/* The kernel's own wait; interrupts.c has another. */
__attribute__((weak)) pid_t wait_for_process(pid_t process, int *status, int options)
{
	return syscall(SYS_wait4, process, status, options, NULL);
}

static int is_of_job_control(int status)
{
	int signal = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;

	return signal == SIGSTOP || signal == SIGCONT || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* Lets a process go on that somebody stopped, if it is not where its kernel waits for it. */
static int goes_on(pid_t process)
{
	siginfo_t sent;

	if (process == let_run)
		return syscall(SYS_ptrace, let_run_by, process, NULL, NULL) == 0;
	/* Before PTRACE_TRACEME only SIGCONT lets it go on. */
	if (syscall(SYS_ptrace, PTRACE_GETSIGINFO, process, NULL, &sent) != 0)
		return 1;
	return sent.si_pid != process && syscall(SYS_ptrace, PTRACE_CONT, process, NULL, NULL) == 0;
}

pid_t waitpid(pid_t process, int *status, int options)
{
	pid_t found;

	do
		found = wait_for_process(process, status, options);
	while (found > 0 && options & WUNTRACED && status && is_of_job_control(*status) && goes_on(found));
	return found;
}
