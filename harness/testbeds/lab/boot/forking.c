/*
 * With early.c in front of the C library of fio in the lab (harness/runs/fio_startup.py): fio is loaded once, reads its
 * options, and forks each time before it reads a job file, whose files it is given on a socket. So no libraries are
 * loaded for a job, and the processor's clock is not calibrated again, for which fio reads it for 65 ms
 * (calibrate_cpu_clock() in its gettime.c).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET "HARNESS_FORKING"

enum { FILES = 3, CS_CPUCLOCK = 3 };

static int jobs = -1;

static __attribute__((constructor)) void begin(void)
{
	const char *number = getenv(SOCKET);

	jobs = number ? atoi(number) : -1;
	unsetenv(SOCKET);
}

/* fio would share locks and its own heap with its children. But jobs are threads, so each child may have its own. */
void *mmap64(void *wanted, size_t length, int protection, int flags, int file, off64_t offset)
{
	if (jobs >= 0 && (flags & MAP_TYPE) == MAP_SHARED && flags & MAP_ANONYMOUS)
		flags ^= MAP_SHARED | MAP_PRIVATE;
	return (void *)syscall(SYS_mmap, wanted, length, protection, flags, file, offset);
}

void *mmap(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap64")));

/* Calibrate and test the processor's clock, as fio does if no job names another (fio_clock_init()). */
static bool calibrated(void)
{
	int *source = dlsym(RTLD_DEFAULT, "fio_clock_source"), *is_set = dlsym(RTLD_DEFAULT, "fio_clock_source_set");
	int (*test)(int) = (__typeof__(test))dlsym(RTLD_DEFAULT, "fio_monotonic_clocktest");
	void (*calibrate)(void) = (__typeof__(calibrate))dlsym(RTLD_DEFAULT, "fio_clock_init");
	bool *reliable = dlsym(RTLD_DEFAULT, "tsc_reliable");

	if (!source || !is_set || !test || !calibrate || !reliable || !*reliable)
		return false;
	*source = CS_CPUCLOCK;
	*is_set = 1;
	calibrate();
	return test(0) == 0;
}

/* Wait for the files of a job; whether there is one more. */
static bool receive(int *files)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(FILES * sizeof(int))];
	} control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };

	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(jobs, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen < sizeof(control.header))
		return false;
	memcpy(files, CMSG_DATA(&control.header), FILES * sizeof(int));
	return control.header.cmsg_len == CMSG_LEN(FILES * sizeof(int));
}

/* Fork for each job. Returns in a child, whose standard input, output and error are the job's. */
static void fork_for_jobs(void)
{
	int files[FILES], status, i;
	pid_t child;

	if (!calibrated() || write(jobs, "", 1) != 1)
		_exit(1);
	while (receive(files)) {
		child = fork();
		for (i = 0; i < FILES; i++) {
			if (child == 0)
				dup2(files[i], i);
			close(files[i]);
		}
		if (child == 0) {
			close(jobs);
			jobs = -1;
			return;
		}
		if (child < 0 || waitpid(child, &status, 0) != child || write(jobs, &status, sizeof(status)) != sizeof(status))
			_exit(1);
	}
	_exit(0);
}

char *fgets(char *text, int size, FILE *file)
{
	static __typeof__(&fgets) real;

	if (jobs >= 0 && file == stdin)
		fork_for_jobs();
	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "fgets");
	return real(text, size, file);
}
