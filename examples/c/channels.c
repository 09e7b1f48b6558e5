/* Events between applications: register with a group, create a channel, subscribe, submit, poll.
 *
 *   cc channels.c $(pkg-config --cflags --libs qfabric) -o channels && ./channels
 *
 * The daemon's configuration needs [channels] enabled = true.
 */
#include <stdio.h>
#include <string.h>

#include <qfabric.h>

struct frame {
	int number;
	int size;
};

static void handle(void *data, const char *host, const qf_event *event)
{
	struct frame frame;

	memcpy(&frame, event->data, sizeof frame);
	printf("frame %d of %s\n", frame.number, host);
	++*(int *)data;
}

/* Called when a policy of this host's resource manager decides a rate: an encoder for those sinks should send
 * less. */
static void adapt(void *data, const qf_decided *decided)
{
	(void)data;
	if (decided->holds)
		fprintf(stderr, "%s for %s: %lld\n", decided->attribute, decided->subject, (long long)decided->amount);
}

static int failed(const char *call)
{
	fprintf(stderr, "%s: %s\n", call, qf_last_error());
	return 1;
}

int main(void)
{
	const qf_qos wanted = { .metric = "frame_rate", .min = 10, .max = 25 };
	qf_channels *channels = NULL;
	qf_registration *registration = NULL;
	qf_channel *video = NULL;
	qf_source *source = NULL;
	qf_sink *sink = NULL;
	unsigned int filtered = 0;
	int handled = 0;

	if (qf_channels_connect(&channels) != QF_OK)
		return failed("qf_channels_connect");
	if (qf_channels_register(channels, "player", "conference", &wanted, 1, &registration) != QF_OK)
		return failed("qf_channels_register");
	if (qf_channel_create(channels, "video", "struct frame { int number; int size; };", &video) != QF_OK)
		return failed("qf_channel_create");
	if (qf_channel_sink_subscribe(video, handle, &handled, &sink) != QF_OK)
		return failed("qf_channel_sink_subscribe");
	if (qf_channels_on_decided(channels, adapt, NULL) != QF_OK)
		return failed("qf_channels_on_decided");
	/* A report for policies, such as a policy that keeps video and sound in step. */
	if (qf_registration_report(registration, "app.position", 0) != QF_OK)
		return failed("qf_registration_report");
	/* A filter that blocks every second frame. */
	if (qf_channel_install_filter(video, true, "odd", "return input.number % 2;", false) != QF_OK)
		return failed("qf_channel_install_filter");
	if (qf_channel_source_subscribe(video, &source) != QF_OK)
		return failed("qf_channel_source_subscribe");
	for (int number = 1; number <= 3; number++) {
		struct frame frame = { number, 1400 };
		qf_sent sent;

		if (qf_channel_submit(source, 0, &frame, sizeof frame, 0, &sent) != QF_OK)
			return failed("qf_channel_submit");
		filtered += sent.filtered;
	}
	while (handled < 2)
		if (qf_channels_poll(channels, 1000000000, NULL) != QF_OK)
			return failed("qf_channels_poll");
	printf("3 submitted, %u filtered, %d handled\n", filtered, handled);

	qf_source_free(source);
	qf_sink_free(sink);
	qf_channel_free(video);
	qf_registration_free(registration);
	qf_channels_free(channels);
	return 0;
}
