/*
 * Loaded in front of the C library of fio in the lab (harness/runs/fio_startup.py): fio's jobs begin sooner, and fio ends
 * sooner after them.
 *
 * Nothing that is measured changes: fio takes the time from when a job begins to when it has ended, and in between all
 * is as without the library. Jobs are threads (`thread` in each job), and all begin at once (`stonewall`, `startdelay`
 * and `wait_for` are left out: harness/parse/jobfile.py). What is said of fio is in its backend.c and init.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum { BEFORE_JOBS_US = 100000, PIECE_US = 2000, BESIDE_JOBS_US = 10000 };

static int ended; /* How many threads have. */

struct work {
	void *(*run)(void *);
	void *argument;
};

static void *run_to_its_end(void *given)
{
	struct work work = *(struct work *)given;
	void *result;

	free(given);
	result = work.run(work.argument);
	__atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &ended, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	static __typeof__(&pthread_create) real;
	struct work *work = malloc(sizeof(*work));
	int failed;

	if (!work)
		return EAGAIN;
	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_create");
	*work = (struct work){ run, argument };
	failed = real(thread, attributes, run_to_its_end, work);
	if (failed)
		free(work);
	return failed;
}

/*
 * When fio has started its jobs, it sleeps for 100 ms before it looks for the first time whether all are initialised
 * (run_threads(), `do_usleep(100000)`), and only then lets them begin. In the lab they are after a few ms. Here that
 * sleep is cut into pieces, after each of which fio looks, for no longer than the first 100 ms.
 *
 * While its jobs run, fio sleeps for 10 ms at a time (`do_usleep(10000)`), and once more after the last has ended. Here
 * it sleeps as long, but no longer than until a job has ended, and not after that.
 */
int usleep(useconds_t duration_us)
{
	static __thread int is_main = -1;
	static int pieces = BEFORE_JOBS_US / PIECE_US, seen;
	struct timespec duration = { duration_us / 1000000, duration_us % 1000000 * 1000 };
	int now;

	if (is_main < 0)
		is_main = syscall(SYS_gettid) == getpid();
	if (is_main && duration_us == BESIDE_JOBS_US) {
		now = __atomic_load_n(&ended, __ATOMIC_SEQ_CST);
		if (now == seen)
			syscall(SYS_futex, &ended, FUTEX_WAIT_PRIVATE, now, &duration, NULL, 0);
		seen = now;
		return 0;
	}
	if (is_main && duration_us == BEFORE_JOBS_US && pieces > 0) {
		pieces--;
		duration.tv_nsec = PIECE_US * 1000;
	}
	return nanosleep(&duration, NULL);
}

/*
 * fio has the state of its jobs in 1.5 MB of shared memory, which it fills with zeros (add_thread_segment()). In the
 * lab each of these 375 pages is a signal of the machine's. Here the kernel makes all pages at once; and because the
 * access to them changes, and back, it tells the machine's kernel of all at once.
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
