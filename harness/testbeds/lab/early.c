/*
 * Loaded in front of the C library of fio in the lab (harness/runs/lean.py): fio notices sooner that its jobs can begin.
 *
 * When fio has started its jobs, it sleeps for 100 ms before it looks for the first time whether all are initialised,
 * and only then lets them begin (run_threads() of its backend.c, `do_usleep(100000)`). In the lab they are after a few
 * ms. Here that sleep is cut into pieces, after each of which fio looks, for no longer than the first 100 ms.
 *
 * Nothing that is measured changes. fio takes the time from when a job begins. Its main thread sleeps for exactly
 * 100000 us in two places: there, and between jobs that begin later than others, which no job of the harness does
 * (`stonewall`, `startdelay` and `wait_for` are left out: harness/parse/jobfile.py). While jobs run it sleeps for
 * 10000 us at a time. Jobs are other threads (`thread` in each job).
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WHOLE_US = 100000, PIECE_US = 2000 };

int usleep(useconds_t duration_us)
{
	static int left = WHOLE_US / PIECE_US;

	if (duration_us == WHOLE_US && left > 0 && syscall(SYS_gettid) == getpid()) {
		left--;
		duration_us = PIECE_US;
	}
	return nanosleep(&(struct timespec){ duration_us / 1000000, duration_us % 1000000 * 1000 }, NULL);
}
