/*
 * Keeps Debian's user-mode kernel 6.1 from sleeping through an interrupt for up to a tick of 10 ms.
 *
 * Its idle loop looks whether a process has become runnable, and then sleeps in sigsuspend() until the next
 * signal (os_idle_sleep(), arch/um/os-Linux/time.c). A signal in between, be it a packet's or a timer's, is
 * handled before the sleep, and the process that it woke waits for the next one. Later kernels look again
 * with signals blocked. Here sigsuspend() returns at once if a signal has come since it last returned, so
 * that the idle loop looks once more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL_SIGSET_BYTES 8

static volatile sig_atomic_t has_come;
static void (*handlers[NSIG])(int, siginfo_t *, void *);

static void note_and_handle(int signal, siginfo_t *info, void *context)
{
	has_come = 1;
	handlers[signal](signal, info, context);
}

int sigaction(int signal, const struct sigaction *given, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	void (*handler)(int, siginfo_t *, void *) = handlers[signal];
	struct sigaction noting;
	int status;

	if (!next)
		next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	if (given && (given->sa_flags & SA_SIGINFO) && (signal == SIGIO || signal == SIGALRM)) {
		noting = *given;
		handlers[signal] = given->sa_sigaction;
		noting.sa_sigaction = note_and_handle;
		given = &noting;
	}
	status = next(signal, given, old);
	/* The kernel puts a handler of its own in the place of another's for a while (check_one_sigio()). */
	if (old && old->sa_sigaction == note_and_handle)
		old->sa_sigaction = handler;
	return status;
}

int sigsuspend(const sigset_t *mask)
{
	sigset_t interrupts, before;

	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGIO);
	sigaddset(&interrupts, SIGALRM);
	sigprocmask(SIG_BLOCK, &interrupts, &before);
	if (!has_come)
		syscall(SYS_rt_sigsuspend, mask, KERNEL_SIGSET_BYTES);
	has_come = 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = EINTR;
	return -1;
}
