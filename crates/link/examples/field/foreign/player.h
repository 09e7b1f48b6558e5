/* Shared by the players in C: measures and prints. Times in microseconds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static double clock_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double now_us(void) { return clock_us(CLOCK_MONOTONIC); }
static double cpu_us(void) { return clock_us(CLOCK_PROCESS_CPUTIME_ID); }

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/* When the conductor ends, this input is closed. */
static void *obey(void *unused)
{
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}

static void begin(void)
{
	pthread_t thread;
	alarm(150); /* end in any case */
	pthread_create(&thread, NULL, obey, NULL);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Makes round trips with pauses; prints p50 and p99. */
static void report_trips(int trips, void (*trip)(void))
{
	double *times = calloc(trips, sizeof *times);
	for (int i = 0; i < 200; i++)
		trip();
	for (int i = 0; i < trips; i++) {
		usleep(500);
		double start = now_us();
		trip();
		times[i] = now_us() - start;
	}
	qsort(times, trips, sizeof *times, compare);
	printf("result %.1f %.1f\n", times[trips / 2], times[trips * 99 / 100]);
	fflush(stdout);
}

/* Submits events with pauses. Prints the CPU time of an event beyond the same pauses without it, the duration of the call,
 * and the process's CPU use without events in percent of a processor. */
static void report_cost(int events, int pause_us, void (*submit)(void))
{
	double *calls = calloc(events, sizeof *calls), before = cpu_us(), start = now_us(), rest, pauses, spent;
	sleep(1);
	rest = (cpu_us() - before) / (now_us() - start);
	before = cpu_us();
	for (int i = 0; i < events / 2; i++)
		usleep(pause_us);
	pauses = (cpu_us() - before) / (events / 2);
	for (int i = -events / 10; i < events; i++) {
		if (i == 0)
			before = cpu_us();
		start = now_us();
		submit();
		if (i >= 0)
			calls[i] = now_us() - start;
		usleep(pause_us);
	}
	spent = (cpu_us() - before) / events - pauses;
	qsort(calls, events, sizeof *calls, compare);
	printf("result %.2f %.2f %.3f\n", spent, calls[events / 2], rest * 100);
	fflush(stdout);
}
