/*
 * Interrupts of a user-mode kernel in real time: a timer on time, and none that is slept through.
 *
 * A timer. The kernel asks the machine for a signal each time that it sets its timer. On a virtual machine that
 * takes 10 to 15 us, because its processor's timer is the hypervisor's to set, and the signal comes 10 to 25 us
 * late. An emulated link sets a timer for each frame or burst, and each of them was that much late. Here the
 * kernel's timer is a number: whoever reads the clock looks whether it is due, and so does a loop in which the
 * idle kernel waits for the last SPIN_NS. The machine's timer is set only
 *  - before a longer sleep, for SPIN_NS before the kernel's is due,
 *  - for when it is due, if a process of the kernel's goes on and the last one that did took its time,
 *  - and as a net, BACKSTOP_NS later, for whatever neither sleeps nor reads the clock.
 * A signal of the machine's that comes before the kernel's timer is due ends here.
 *
 * An interrupt that is slept through. The idle loop of Linux 6.1 looks whether a process has become runnable, and
 * then sleeps in sigsuspend() until the next signal (os_idle_sleep(), arch/um/os-Linux/time.c). A signal in
 * between, be it a packet's or a timer's, is handled before the sleep, and the process that it woke waits for
 * the next one, up to a tick of 10 ms. Later kernels look again with signals blocked. Here sigsuspend() returns
 * at once if a signal has come since it last returned, so that the idle loop looks once more.
 *
 * All of it is for the threads that made a timer, the kernel's own. timer_create(2), signal(7).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KERNEL_SIGSET_BYTES 8
#define SYSCALL_ARGUMENTS 6
#define NS_PER_S 1000000000LL

#define SPIN_NS 100000LL /* more than a signal of the machine's is late, 99 times of 100 */
#define LONG_NS 30000LL
#define BACKSTOP_NS 1000000LL

/* Each of the kernel's processors is a thread with a timer of its own. No signal's handler may have to allocate these. */
#define OF_PROCESSOR static __thread __attribute__((tls_model("initial-exec")))

OF_PROCESSOR pid_t kernel_thread; /* in such a thread its number, in all others 0 */
OF_PROCESSOR timer_t machine_timer;
OF_PROCESSOR volatile long long due_ns; /* CLOCK_MONOTONIC of the kernel's timer; 0: it is not set */
OF_PROCESSOR volatile long long armed_ns; /* CLOCK_MONOTONIC of the machine's timer; 0: it is not set */
OF_PROCESSOR volatile sig_atomic_t is_periodic; /* the kernel has the machine's timer itself, as while it starts */
OF_PROCESSOR volatile sig_atomic_t waits_for_processes; /* it runs its processes in a way that is seen here */
OF_PROCESSOR volatile sig_atomic_t is_sent; /* a signal for the kernel's timer is on its way */
OF_PROCESSOR volatile sig_atomic_t has_come; /* a signal, since sigsuspend() last returned */
static sigset_t interrupts;
static void (*handlers[NSIG])(int, siginfo_t *, void *);

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_poll)(struct pollfd *, nfds_t, int);
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*real_timer_create)(clockid_t, struct sigevent *, timer_t *);
static int (*real_timer_gettime)(timer_t, struct itimerspec *);
static int (*real_timer_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);
static long (*real_syscall)(long, ...);
static pid_t (*real_waitpid)(pid_t, int *, int);
pid_t wait_for_process(pid_t process, int *status, int options);

static void *find(const char *name, void **found)
{
	if (!*found)
		*found = dlsym(RTLD_NEXT, name);
	return *found;
}

#define REAL(name) ((__typeof__(real_##name))find(#name, (void **)&real_##name))

static long long to_ns(const struct timespec *time)
{
	return time->tv_sec * NS_PER_S + time->tv_nsec;
}

static struct timespec from_ns(long long time_ns)
{
	return (struct timespec){ time_ns / NS_PER_S, time_ns % NS_PER_S };
}

static long long now_ns(void)
{
	struct timespec now;

	REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
	return to_ns(&now);
}

/* Whether the machine's timer will be due at this time or before; one that was due is not set any more. */
static int is_armed_by(long long at_ns)
{
	return armed_ns && armed_ns <= at_ns && armed_ns > now_ns();
}

/*
 * Let the machine's timer be due at this time or before.
 *
 * No interrupt comes between armed_ns and the timer. Its handler may set both, and the timer set here would then be
 * another one than armed_ns says: once it has gone off none would be set again, and the kernel would sleep for ever.
 */
static void arm_by(long long at_ns)
{
	struct itimerspec timer = { .it_value = from_ns(at_ns) };
	sigset_t before;

	if (is_armed_by(at_ns))
		return;
	sigprocmask(SIG_BLOCK, &interrupts, &before);
	if (!is_armed_by(at_ns)) {
		armed_ns = at_ns;
		REAL(timer_settime)(machine_timer, TIMER_ABSTIME, &timer, NULL);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void send(void)
{
	is_sent = 1;
	REAL(syscall)(SYS_tgkill, getpid(), kernel_thread, SIGALRM);
}

/* Whether the kernel's timer is due; it is not set any more then. */
static int is_due(void)
{
	long long now = now_ns();

	is_sent = 0;
	/* One signal may stand for both the machine's timer and send(). */
	if (armed_ns <= now)
		armed_ns = 0;
	if (due_ns && now < due_ns)
		arm_by(due_ns + BACKSTOP_NS);
	if (!due_ns || now < due_ns)
		return 0;
	due_ns = 0;
	return 1;
}

static void note_and_handle(int signal, siginfo_t *info, void *context)
{
	if (signal == SIGALRM && kernel_thread && !is_periodic && !is_due())
		return;
	has_come = 1;
	handlers[signal](signal, info, context);
}

int sigaction(int signal, const struct sigaction *given, struct sigaction *old)
{
	void (*handler)(int, siginfo_t *, void *) = handlers[signal];
	struct sigaction noting;
	int status;

	if (given && (given->sa_flags & SA_SIGINFO) && (signal == SIGIO || signal == SIGALRM)) {
		noting = *given;
		handlers[signal] = given->sa_sigaction;
		noting.sa_sigaction = note_and_handle;
		given = &noting;
	}
	status = REAL(sigaction)(signal, given, old);
	/* The kernel puts a handler of its own in the place of another's for a while (check_one_sigio()). */
	if (old && old->sa_sigaction == note_and_handle)
		old->sa_sigaction = handler;
	return status;
}

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	int status = REAL(timer_create)(clock, event, timer);

	if (status == 0) {
		sigemptyset(&interrupts);
		sigaddset(&interrupts, SIGIO);
		sigaddset(&interrupts, SIGALRM);
		machine_timer = *timer;
		kernel_thread = REAL(syscall)(SYS_gettid);
	}
	return status;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *given, struct itimerspec *old)
{
	long long in_ns = to_ns(&given->it_value);

	if (!kernel_thread)
		return REAL(timer_settime)(timer, flags, given, old);
	due_ns = 0;
	is_periodic = to_ns(&given->it_interval) != 0;
	if (is_periodic) {
		armed_ns = 0;
		return REAL(timer_settime)(timer, flags, given, old);
	}
	if (in_ns) {
		due_ns = now_ns() + in_ns;
		arm_by(due_ns + (waits_for_processes ? BACKSTOP_NS : 0));
	}
	return 0;
}

int timer_gettime(timer_t timer, struct itimerspec *left)
{
	long long left_ns;

	if (!kernel_thread || is_periodic)
		return REAL(timer_gettime)(timer, left);
	left_ns = due_ns ? due_ns - now_ns() : 0;
	/* Zero would mean that it is not set. */
	*left = (struct itimerspec){ .it_value = from_ns(due_ns && left_ns < 1 ? 1 : left_ns) };
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int status = REAL(clock_gettime)(clock, now);

	if (kernel_thread && due_ns && !is_sent && clock == CLOCK_MONOTONIC && to_ns(now) >= due_ns)
		send();
	return status;
}

/*
 * The kernel waits for a process of its own that it lets run (userspace(), arch/um/os-Linux/skas/process.c). Most of
 * them soon ask the kernel for something, and setting the machine's timer for each would take longer.
 */
OF_PROCESSOR int is_long;

static long long begin_process(void)
{
	waits_for_processes = 1;
	if (due_ns && is_long)
		arm_by(due_ns);
	return now_ns();
}

static void end_process(long long began_ns)
{
	is_long = now_ns() - began_ns > LONG_NS;
}

/* Called by waitpid() of traced.c. */
pid_t wait_for_process(pid_t process, int *status, int options)
{
	long long began_ns;
	pid_t found;

	if (!kernel_thread || !(options & WUNTRACED))
		return REAL(waitpid)(process, status, options);
	began_ns = begin_process();
	found = REAL(waitpid)(process, status, options);
	end_process(began_ns);
	return found;
}

/* With `seccomp=on` (Linux 6.16 and later) the kernel waits for a process by a futex (wait_stub_done_seccomp()). */
long syscall(long number, ...)
{
	long given[SYSCALL_ARGUMENTS], found;
	long long began_ns;
	int is_process;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < SYSCALL_ARGUMENTS; i++)
		given[i] = va_arg(list, long);
	va_end(list);
	is_process = kernel_thread && number == SYS_futex && (int)given[1] == FUTEX_WAIT;
	began_ns = is_process ? begin_process() : 0;
	found = REAL(syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
	if (is_process)
		end_process(began_ns);
	return found;
}

/* Wait for the kernel's timer, which is almost due, or for a signal that comes before. */
static void wait_awake(void)
{
	while (!has_come && due_ns && now_ns() < due_ns)
		sched_yield();
	if (!has_come && due_ns)
		send(); /* SIGALRM is blocked here; its handler is called as the kernel unblocks it. */
}

static void sleep_until_signal(const sigset_t *mask)
{
	sigset_t before;

	sigprocmask(SIG_BLOCK, &interrupts, &before);
	if (!has_come) {
		if (kernel_thread && due_ns)
			arm_by(due_ns - SPIN_NS);
		REAL(syscall)(SYS_rt_sigsuspend, mask, KERNEL_SIGSET_BYTES);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/*
 * The idle kernel of Linux 7.2 and 7.3 (os_idle_sleep()): with SIGALRM blocked it waits for a descriptor from which that
 * signal can be read. A signal for the kernel's timer that send() sends is there as well.
 */
int poll(struct pollfd *files, nfds_t count, int timeout_ms)
{
	int found = 0;

	if (!kernel_thread || !due_ns || count != 1 || timeout_ms >= 0)
		return REAL(poll)(files, count, timeout_ms);
	if (due_ns - now_ns() > SPIN_NS)
		arm_by(due_ns - SPIN_NS);
	else
		while (!has_come && !found && due_ns) {
			if (now_ns() >= due_ns)
				send();
			found = REAL(poll)(files, count, 0);
			sched_yield();
		}
	if (has_come) {
		errno = EINTR;
		found = -1;
	} else if (!found) {
		found = REAL(poll)(files, count, timeout_ms);
	}
	has_come = 0;
	return found;
}

int sigsuspend(const sigset_t *mask)
{
	if (kernel_thread && due_ns && due_ns - now_ns() <= SPIN_NS)
		wait_awake();
	else
		sleep_until_signal(mask);
	has_come = 0;
	errno = EINTR;
	return -1;
}
