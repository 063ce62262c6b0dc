/* fio(1) finds out how fast the processor's clock is before it does anything: it reads the kernel's clock for
 * 50 x 1.28 ms (calibrate_cpu_clock() in gettime.c). In virtual time each read takes 256 ns, so that is
 * 255 000 of them, and 4 to 15 s. Here its first reads sleep, which takes virtual time alone. All clocks tell
 * the truth: time really passes. None of it is measured, for no job has begun.
 *
 * And it begins on a whole second, so that the kernel's ticks and a platter that turns come to it
 * as they came in any other run, whatever was done before and however long that took.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct timespec LONGER_THAN_A_ROUND = {0, 1300000};
enum { READS = 100 };

__attribute__((constructor)) static void begin_on_a_whole_second(void)
{
    struct timespec now;
    struct timespec second = {0, 0};

    /* What starts fio, a shell or ip-netns(8), comes by here as well. */
    if (strcmp(program_invocation_short_name, "fio"))
        return;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    second.tv_sec = now.tv_sec + 1;
    /* A sleep may end 50 us late otherwise, to save the processor wake-ups. */
    prctl(PR_SET_TIMERSLACK, 1);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &second, 0);
    /* What fio starts has no time to lose. */
    unsetenv("LD_PRELOAD");
}

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
