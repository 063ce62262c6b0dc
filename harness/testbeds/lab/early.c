/*
 * Loaded in front of the C library of fio in the lab (harness/runs/lean.py): fio's jobs begin sooner.
 *
 * Nothing that is measured changes. Both functions do what those of the C library do, only sooner, and fio calls them
 * before its jobs begin.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum { WHOLE_US = 100000, PIECE_US = 2000 };

/*
 * When fio has started its jobs, it sleeps for 100 ms before it looks for the first time whether all are initialised,
 * and only then lets them begin (run_threads() of its backend.c, `do_usleep(100000)`). In the lab they are after a few
 * ms. Here that sleep is cut into pieces, after each of which fio looks, for no longer than the first 100 ms.
 *
 * fio takes the time from when a job begins. Its main thread sleeps for exactly 100000 us in two places: there, and
 * between jobs that begin later than others, which no job of the harness does (`stonewall`, `startdelay` and `wait_for`
 * are left out: harness/parse/jobfile.py). While jobs run it sleeps for 10000 us at a time. Jobs are other threads
 * (`thread` in each job).
 */
int usleep(useconds_t duration_us)
{
	static int left = WHOLE_US / PIECE_US;

	if (duration_us == WHOLE_US && left > 0 && syscall(SYS_gettid) == getpid()) {
		left--;
		duration_us = PIECE_US;
	}
	return nanosleep(&(struct timespec){ duration_us / 1000000, duration_us % 1000000 * 1000 }, NULL);
}

/*
 * fio has the state of its jobs in 1.5 MB of shared memory, which it fills with zeros (add_thread_segment() of its
 * init.c). In the lab each of these 375 pages is a signal of the machine's. Here the kernel makes all pages at once; and
 * because the access to them changes, and back, it tells the machine's kernel of all at once.
 */
void *shmat(int id, const void *wanted, int flags)
{
	void *at = (void *)syscall(SYS_shmat, id, wanted, flags);
	struct shmid_ds about;

	if (at != (void *)-1 && !(flags & SHM_RDONLY) && shmctl(id, IPC_STAT, &about) == 0 &&
	    madvise(at, about.shm_segsz, MADV_POPULATE_WRITE) == 0) {
		mprotect(at, about.shm_segsz, PROT_READ);
		mprotect(at, about.shm_segsz, PROT_READ | PROT_WRITE);
	}
	return at;
}
