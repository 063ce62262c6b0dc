/* fio(1) finds out how fast the processor's clock is before it does anything: it reads the kernel's clock for
 * 50 x 1.28 ms (calibrate_cpu_clock() in gettime.c). In virtual time each read takes 256 ns, so that is
 * 255 000 of them, and 4 to 15 s. Here its first reads sleep, which takes virtual time alone. All clocks tell
 * the truth: time really passes. None of it is measured, for no job has begun.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static const struct timespec LONGER_THAN_A_ROUND = {0, 1300000};
enum { READS = 100 };

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    static int reads;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (clock == CLOCK_MONOTONIC && reads < READS && __sync_fetch_and_add(&reads, 1) < READS)
        nanosleep(&LONGER_THAN_A_ROUND, 0);
    return real(clock, now);
}
