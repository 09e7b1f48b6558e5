/* Loaded before the C library: CLOCK_REALTIME of a process is ahead by the seconds in the file $QFABRIC_TEST_STEP, which
 * may change at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("QFABRIC_TEST_STEP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (file >= 0) {
        void *at = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        ahead = at == MAP_FAILED ? NULL : at;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);

    if (result == 0 && clock == CLOCK_REALTIME && ahead)
        time->tv_sec += *ahead;
    return (int)result;
}
