/*
 * Shared by the rivals in C: the plan of frames, the pace, reassembly, and the conversation with the conductor
 * (../conversation.rs). Times in nanoseconds of CLOCK_MONOTONIC.
 *
 * PROGRAM send|receive HOST PORT PLAN LATENCY_MS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_FRAMES 100000
/* What live streams over SRT and RIST send: seven packets of an MPEG transport stream. */
#define MESSAGE 1316

/* Beginning of each message: one piece of a frame. */
struct piece {
	uint64_t due_ns;
	uint32_t frame, size, offset, zero;
};
#define PAYLOAD (MESSAGE - sizeof(struct piece))

static struct {
	const char *host, *latency_ms;
	int port, sends;
	uint64_t period_ns, granted_bps;
	/* A frame of size 0 is a pause; the others are expected. */
	uint32_t frames, expected, sizes[MOST_FRAMES];
} plan;

/* Of each frame: bytes that have come, when it was due, when the last byte came; 0 is never. */
static uint32_t come[MOST_FRAMES];
static uint64_t due[MOST_FRAMES], arrived[MOST_FRAMES];
static uint32_t complete;
static uint64_t cpu_at_start;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

/* Reads up to this line; the end of the input is the end of the conductor, and of this process. */
static void wait_for(const char *word)
{
	char line[64];
	do
		if (!fgets(line, sizeof line, stdin))
			_exit(0);
	while (strncmp(line, word, strlen(word)));
	if (!strcmp(word, "go"))
		cpu_at_start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void tell(void)
{
	for (uint32_t i = 0; i < plan.frames && !plan.sends; i++) {
		uint64_t at = __atomic_load_n(&arrived[i], __ATOMIC_ACQUIRE);
		if (at)
			printf("frame %u %llu %llu\n", i, (unsigned long long)due[i], (unsigned long long)at);
	}
	printf("cpu_ns %llu\nend\n",
	       (unsigned long long)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_at_start));
	fflush(stdout);
	wait_for("(the end)");
}

static void *converse(void *unused)
{
	wait_for("go");
	wait_for("tell");
	tell();
	return unused;
}

static void begin(int argc, char **argv)
{
	if (argc != 6)
		fail("usage: PROGRAM send|receive HOST PORT PLAN LATENCY_MS");
	plan.sends = !strcmp(argv[1], "send");
	plan.host = argv[2];
	plan.port = atoi(argv[3]);
	plan.latency_ms = argv[5];
	FILE *file = fopen(argv[4], "r");
	unsigned long long period, deadline, granted;
	if (!file || fscanf(file, "%llu %llu %llu %*d", &period, &deadline, &granted) != 3)
		fail("the plan cannot be read");
	plan.period_ns = period;
	plan.granted_bps = granted;
	while (plan.frames < MOST_FRAMES && fscanf(file, "%u %*c", &plan.sizes[plan.frames]) == 1)
		plan.expected += plan.sizes[plan.frames++] > 0;
	fclose(file);
}

/* One message of the network. */
static void take(const void *message, size_t length)
{
	struct piece piece;
	if (length < sizeof piece)
		return;
	memcpy(&piece, message, sizeof piece);
	uint32_t i = piece.frame;
	if (i >= plan.frames || piece.size != plan.sizes[i] || arrived[i])
		return;
	due[i] = piece.due_ns;
	come[i] += length - sizeof piece;
	if (come[i] < piece.size)
		return;
	__atomic_store_n(&arrived[i], clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
	if (++complete == plan.expected)
		say("all");
}

/* After the connection of a sender, or when a receiver listens. The sender then sends the whole plan. */
static void listen_to_conductor(void)
{
	pthread_t thread;
	say("ready");
	if (!plan.sends)
		pthread_create(&thread, NULL, converse, NULL);
	else
		wait_for("go");
}

static void send_plan(void (*send)(const void *message, size_t length))
{
	static char bytes[MESSAGE];
	uint64_t start = clock_ns(CLOCK_MONOTONIC) + plan.period_ns;
	for (uint32_t i = 0; i < plan.frames; i++) {
		struct piece piece = { start + i * plan.period_ns, i, plan.sizes[i], 0, 0 };
		struct timespec at = { piece.due_ns / 1000000000, piece.due_ns % 1000000000 };
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
			;
		for (; piece.offset < piece.size; piece.offset += PAYLOAD) {
			size_t length = piece.size - piece.offset < PAYLOAD ? piece.size - piece.offset : PAYLOAD;
			memcpy(bytes, &piece, sizeof piece);
			memset(bytes + sizeof piece, (int)i, length);
			send(bytes, sizeof piece + length);
		}
	}
	say("sent");
	wait_for("tell");
	tell();
}
