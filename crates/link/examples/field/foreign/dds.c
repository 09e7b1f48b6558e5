/* Cyclone DDS: best effort, listeners. dds PART dds NET SIZE ... (see play.rs). The domain's number is derived from NET. */
#include "player.h"
#include <semaphore.h>
#include <sys/wait.h>
#include "dds/dds.h"
#include "event.h"

static dds_entity_t participant, writer;
static sem_t came;
static Event event;

static void submit(void) { dds_write(writer, &event); }

static int take(dds_entity_t reader)
{
	void *samples[1] = { NULL };
	dds_sample_info_t info;
	int count = dds_take(reader, samples, &info, 1, 1);
	int valid = count > 0 && info.valid_data;
	if (count > 0)
		dds_return_loan(reader, samples, count);
	return valid;
}

static void answer(dds_entity_t reader, void *unused)
{
	if (take(reader))
		submit();
}

static void note(dds_entity_t reader, void *unused)
{
	if (take(reader))
		sem_post(&came);
}

static void swallow(dds_entity_t reader, void *unused)
{
	while (take(reader))
		;
}

static dds_entity_t topic(const char *name)
{
	return dds_create_topic(participant, &Event_desc, name, NULL, NULL);
}

static void read_from(const char *name, dds_on_data_available_fn each)
{
	dds_listener_t *listener = dds_create_listener(NULL);
	dds_lset_data_available(listener, each);
	if (dds_create_reader(participant, topic(name), NULL, listener) < 0)
		exit(1);
}

static void wait_for(uint32_t sinks)
{
	dds_publication_matched_status_t status = { 0 };
	for (int i = 0; i < 1200 && status.current_count < sinks; i++) {
		usleep(50000);
		dds_get_publication_matched_status(writer, &status);
	}
	if (status.current_count < sinks)
		exit(1);
}

static void trip(void)
{
	struct timespec end;
	submit();
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 5;
	if (sem_timedwait(&came, &end))
		exit(1);
}

static uint32_t domain(const char *net)
{
	unsigned a, b, c;
	sscanf(net, "%u.%u.%u", &a, &b, &c);
	return (b + c) % 230;
}

int main(int argc, char **argv)
{
	/* One process for each sink, because each host is a process. */
	int sinks = !strcmp(argv[1], "sinks") ? atoi(argv[5]) : 0;
	for (int i = 1; i < sinks; i++)
		if (fork() == 0)
			break;
	begin();
	sem_init(&came, 0, 0);
	participant = dds_create_participant(domain(argv[3]), NULL, NULL);
	if (participant < 0)
		return 1;
	event.bytes._length = event.bytes._maximum = atoi(argv[4]);
	event.bytes._buffer = calloc(1, event.bytes._length);
	if (!strcmp(argv[1], "echo")) {
		writer = dds_create_writer(participant, topic("pong"), NULL, NULL);
		read_from("ping", answer);
		say("ready");
	}
	if (!strcmp(argv[1], "ping")) {
		read_from("pong", note);
		writer = dds_create_writer(participant, topic("ping"), NULL, NULL);
		wait_for(1);
		sleep(1);
		report_trips(atoi(argv[5]), trip);
	}
	if (!strcmp(argv[1], "source")) {
		writer = dds_create_writer(participant, topic("events"), NULL, NULL);
		say("ready");
		wait_for(atoi(argv[5]));
		usleep(700000);
		report_cost(atoi(argv[6]), atoi(argv[7]), submit);
	}
	if (sinks > 0)
		read_from("events", swallow);
	pause();
}
