/* Timers and a pool of threads, like the multi-threaded executor of ROS 2: a free thread of the pool takes the timer
 * that is due next, runs its callback, and returns to the pool. The program does not use Q-Fabric itself.
 *
 *     cc -O2 -pthread executor.c -o executor
 *     qfabric run --period 10ms --max-bandwidth 0.9 -- ./executor 10
 *
 * Prints for each timer its period, the number of callbacks, the number of callbacks that began more than half a
 * period late, and the greatest lateness. Times in nanoseconds. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 4
#define MS 1000000LL

struct timer {
    const char *name;
    int64_t period, work; /* work: CPU time of one callback */
    int64_t due;
    long ran, late;
    int64_t latest;
};

static struct timer timers[] = {
    {"control", 10 * MS, 1 * MS, 0, 0, 0, 0},
    {"camera", 40 * MS, 8 * MS, 0, 0, 0, 0},
    {"map", 100 * MS, 15 * MS, 0, 0, 0, 0},
};
#define TIMERS (sizeof timers / sizeof timers[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t end;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_until(int64_t moment) {
    struct timespec at = {moment / 1000000000LL, moment % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void callback(const struct timer *timer) {
    int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    volatile unsigned long sum = 0;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin < timer->work)
        for (int i = 0; i < 1000; i++) sum += i;
}

/* Takes the timer that is due first. Its next period begins at once, so that another thread can take that period. */
static struct timer *take(int64_t *due) {
    pthread_mutex_lock(&lock);
    struct timer *first = &timers[0];
    for (size_t i = 1; i < TIMERS; i++)
        if (timers[i].due < first->due) first = &timers[i];
    *due = first->due;
    first->due += first->period;
    pthread_mutex_unlock(&lock);
    return first;
}

static void *spin(void *unused) {
    (void)unused;
    for (;;) {
        int64_t due;
        struct timer *timer = take(&due);
        if (due >= end) return NULL;
        sleep_until(due);
        int64_t late = clock_ns(CLOCK_MONOTONIC) - due;
        callback(timer);
        pthread_mutex_lock(&lock);
        timer->ran++;
        timer->late += late > timer->period / 2;
        if (late > timer->latest) timer->latest = late;
        pthread_mutex_unlock(&lock);
    }
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    int64_t begin = clock_ns(CLOCK_MONOTONIC) + 10 * MS;
    end = begin + (int64_t)(seconds * 1e9);
    for (size_t i = 0; i < TIMERS; i++) timers[i].due = begin;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, spin, NULL) != 0) return 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < TIMERS; i++)
        printf("%-8s every %3lld ms: %ld callbacks, %ld late, at most %.1f ms\n", timers[i].name,
               (long long)(timers[i].period / MS), timers[i].ran, timers[i].late, timers[i].latest / 1e6);
    return 0;
}
