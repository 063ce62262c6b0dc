/* Does with timers and signals what a user-mode kernel does: `interrupts SCENARIO` prints what it saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static timer_t timer;
static volatile sig_atomic_t fired, early;
static volatile long long due_us, late_us, again_us;

static void set(long long after_us, long long interval_us);

static long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void handle(int signal, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	if (signal == SIGALRM) {
		fired++;
		late_us = now_us() - due_us;
		early += late_us < 0;
		if (again_us)
			set(again_us, 0);
	}
}

/* How long this thread has waited for a processor that others had, proc_pid_schedstat(5). */
static long long waited_us(void)
{
	long long ran_ns, waited_ns = 0;
	FILE *file = fopen("/proc/thread-self/schedstat", "r");

	if (file) {
		if (fscanf(file, "%lld %lld", &ran_ns, &waited_ns) != 2)
			waited_ns = 0;
		fclose(file);
	}
	return waited_ns / 1000;
}

static void set(long long after_us, long long interval_us)
{
	struct itimerspec given = {
		.it_value = { after_us / 1000000, after_us % 1000000 * 1000 },
		.it_interval = { interval_us / 1000000, interval_us % 1000000 * 1000 },
	};

	due_us = now_us() + after_us;
	timer_settime(timer, 0, &given, NULL);
}

/* os_idle_sleep(), arch/um/os-Linux/time.c */
static void idle(void)
{
	struct itimerspec left;
	sigset_t alarm, old;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, &old);
	timer_gettime(timer, &left);
	if (left.it_value.tv_sec || left.it_value.tv_nsec)
		sigsuspend(&old);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

/* The same since Linux 7.2 */
static void idle_in_poll(void)
{
	static int alarms = -1;
	struct pollfd file = { .events = POLLIN };
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	if (alarms < 0)
		alarms = signalfd(-1, &alarm, SFD_CLOEXEC);
	file.fd = alarms;
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	if (!fired)
		poll(&file, 1, -1);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

/* userspace(), arch/um/os-Linux/skas/process.c: a process that runs for this time */
static void run_process(long long for_us)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		usleep(for_us);
		_exit(0);
	}
	while (waitpid(child, &status, WUNTRACED | __WALL) < 0)
		;
}

/* wait_stub_done_seccomp(), arch/um/os-Linux/skas/process.c */
static void run_process_by_futex(long long for_us)
{
	static volatile int *runs;

	if (!runs)
		runs = mmap(NULL, sizeof(*runs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*runs = 1;
	if (fork() == 0) {
		usleep(for_us);
		*runs = 0;
		syscall(SYS_futex, runs, FUTEX_WAKE, 1, NULL, NULL, 0);
		_exit(0);
	}
	while (*runs)
		syscall(SYS_futex, runs, FUTEX_WAIT, 1, NULL, NULL, 0);
	while (wait(NULL) < 0)
		;
}

/*
 * start_userspace() and userspace(), arch/um/os-Linux/skas/process.c: the signals by which a traced process stops, while
 * somebody stops it, lets it go on, and at last sends another signal.
 */
static void trace_process(int stops[2])
{
	const int sent[] = { SIGSTOP, SIGCONT, SIGTSTP, SIGCONT, SIGUSR1 };
	pid_t child = fork(), other;
	int status;

	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	waitpid(child, &status, WUNTRACED | __WALL);
	stops[0] = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
	ptrace(PTRACE_CONT, child, NULL, NULL);
	other = fork();
	if (other == 0) {
		for (unsigned i = 0; i < sizeof(sent) / sizeof(*sent); i++) {
			kill(child, sent[i]);
			usleep(20000);
		}
		_exit(0);
	}
	waitpid(child, &status, WUNTRACED | __WALL);
	stops[1] = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
	waitpid(other, NULL, 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Whether a process has set itself up once its tracer hears that it stopped, although somebody stopped it before. */
static int start_process(void)
{
	int *is_ready = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork(), other;
	int status, was_ready;

	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		usleep(80000);
		*is_ready = 1;
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	other = fork();
	if (other == 0) {
		usleep(20000);
		kill(child, SIGSTOP);
		usleep(20000);
		kill(child, SIGCONT);
		_exit(0);
	}
	waitpid(child, &status, WUNTRACED | __WALL);
	was_ready = *is_ready;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	waitpid(other, NULL, 0);
	return was_ready;
}

int main(int count, char **words)
{
	const char *scenario = count > 1 ? words[1] : "";
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
	struct itimerspec left;
	volatile long loops;
	int during, stops[2];

	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGIO, &action, NULL);
	timer_create(CLOCK_MONOTONIC, NULL, &timer);
	run_process(0);
	if (!strcmp(scenario, "idle")) {
		for (int i = 0; i < 4; i++) {
			long long waits_us[] = { 30, 99, 1000, 30000 };

			set(waits_us[i], 0);
			while (fired == i)
				idle();
		}
		printf("fired %d early %d\n", fired, early);
	} else if (!strcmp(scenario, "poll")) {
		long long others_us;
		int total = 0, prompt = 0;

		for (int i = 0; i < 40; i++) {
			fired = 0;
			others_us = waited_us();
			set(i % 2 ? 60 : 400, 0);
			while (!fired)
				idle_in_poll();
			total += fired;
			/* Other programs may have had the processor when it was due. */
			prompt += late_us - (waited_us() - others_us) < 700;
		}
		printf("fired %d early %d prompt %d\n", total, early, prompt > 4);
	} else if (!strcmp(scenario, "stopped")) {
		trace_process(stops);
		printf("stops %s %s\n", sigabbrev_np(stops[0]), sigabbrev_np(stops[1]));
	} else if (!strcmp(scenario, "starting")) {
		printf("ready %d\n", start_process());
	} else if (!strcmp(scenario, "clock")) {
		set(200, 0);
		while (now_us() <= due_us + 50)
			;
		printf("fired %d early %d\n", fired, early);
	} else if (!strcmp(scenario, "busy")) {
		set(100, 0);
		for (loops = 0; !fired && loops < 10000000000; loops++)
			;
		printf("fired %d early %d\n", fired, early);
	} else if (!strcmp(scenario, "process")) {
		run_process(1000); /* so the next one is expected to take long as well */
		set(1000, 0);
		run_process(300000);
		during = fired && now_us() - due_us > 200000;
		printf("fired %d early %d during %d\n", fired, early, during);
	} else if (!strcmp(scenario, "futex")) {
		long long others_us;
		int total = 0, prompt = 0;

		run_process_by_futex(1000); /* so the next one is expected to take long as well */
		for (int i = 0; i < 40; i++) {
			fired = 0;
			others_us = waited_us();
			set(3000, 0);
			run_process_by_futex(10000);
			total += fired;
			prompt += late_us - (waited_us() - others_us) < 700;
		}
		printf("fired %d early %d prompt %d\n", total, early, prompt > 4);
	} else if (!strcmp(scenario, "off")) {
		set(50000, 0); /* others may have the processor before it is off */
		set(0, 0);
		timer_gettime(timer, &left);
		usleep(100000);
		printf("fired %d left %ld\n", fired, left.it_value.tv_nsec);
	} else if (!strcmp(scenario, "left")) {
		set(500000, 0);
		timer_gettime(timer, &left);
		printf("left %d\n", left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 500000000);
	} else if (!strcmp(scenario, "periodic")) {
		set(1000, 1000);
		for (loops = 0; fired < 3 && loops < 10000000000; loops++)
			;
		/* On a busy machine it has fired again by now. */
		printf("fired %d\n", fired < 3 ? fired : 3);
		set(300, 0);
		fired = early = 0;
		while (!fired)
			idle();
		printf("fired %d early %d\n", fired, early);
	} else if (!strcmp(scenario, "preempted")) {
		int *preempted = dlsym(RTLD_DEFAULT, "preempted");

		run_process(1000); /* so the next one is expected to take long as well */
		set(2000, 0);
		while (now_us() < due_us - 200)
			;
		/* While it sets the machine's timer for this process, the one that it had set before is due. */
		again_us = 10000;
		*preempted = 1;
		run_process(1000);
		again_us = 0;
		fired = early = 0;
		set(300000, 0);
		while (!fired)
			idle();
		printf("fired %d early %d\n", fired, early);
	} else if (!strcmp(scenario, "missed")) {
		set(5000000, 0);
		kill(getpid(), SIGIO);
		idle();
		printf("woke %d\n", now_us() < due_us);
	}
	return 0;
}
