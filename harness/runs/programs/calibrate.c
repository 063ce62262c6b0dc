/* Before it does anything, fio(1) measures the rate of the processor's clock: it reads the kernel's clock for
 * 50 x 1.28 ms (calibrate_cpu_clock() in gettime.c). In virtual time each read takes 256 ns, so that is
 * 255 000 reads, and 4 to 15 s of real time. This shim makes fio's first reads sleep, which takes only virtual
 * time. All clocks stay correct: time really passes. None of it is measured, because no job has begun.
 *
 * The shim also makes fio begin on a whole second, so that the kernel's ticks and a disk's rotation are at the
 * same phase in every run, whatever was done before and however long that took.
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

    /* The program that starts fio, a shell or ip-netns(8), loads this as well. */
    if (strcmp(program_invocation_short_name, "fio"))
        return;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    second.tv_sec = now.tv_sec + 1;
    /* Otherwise a sleep may end 50 us late, to save the processor wake-ups. */
    prctl(PR_SET_TIMERSLACK, 1);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &second, 0);
    /* Programs that fio starts must not be delayed. */
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
