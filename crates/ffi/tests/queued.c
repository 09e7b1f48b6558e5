/* Events submitted without waiting for their answers arrive in order. A reader that is too slow for the channel loses old
 * ones, never the newest. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

#define EVENTS 500
#define PATIENCE (60000 * MS)

static int newest = -1;

static void count(void *data, const char *host, const qf_event *event)
{
    int number = 0;

    (void)data, (void)host;
    CHECK(event->size == sizeof number);
    memcpy(&number, event->data, sizeof number);
    CHECK(number > newest);
    newest = number;
}

int main(void)
{
    qf_channels *channels = NULL, *reader = NULL;
    qf_channel *channel = NULL, *opened = NULL;
    qf_source *source = NULL;
    qf_sink *sink = NULL;
    bool drained = false;

    CHECK(qf_channels_connect(&channels) == QF_OK && qf_channels_connect(&reader) == QF_OK);
    CHECK(qf_channel_create(channels, "queued", "struct frame { int number; };", &channel) == QF_OK);
    CHECK(qf_channel_open(reader, "queued", &opened) == QF_OK);
    CHECK(qf_channel_sink_subscribe(opened, count, NULL, &sink) == QF_OK);
    CHECK(qf_channel_source_subscribe(channel, &source) == QF_OK);
    CHECK(qf_source_drain(source, 0, &drained) == QF_OK && drained);
    for (int number = 0; number < EVENTS; number++) {
        CHECK(qf_channel_submit_queued(source, 0, &number, sizeof number, 0, PATIENCE) == QF_OK);
        CHECK(qf_channels_poll(reader, 0, NULL) == QF_OK);
    }
    CHECK(qf_source_drain(source, PATIENCE, &drained) == QF_OK && drained);
    while (newest < EVENTS - 1)
        CHECK(qf_channels_poll(reader, PATIENCE, NULL) == QF_OK);
    CHECK(qf_channel_submit_queued(source, 0, NULL, 4, 0, 0) == QF_INVALID);
    CHECK(qf_source_drain(source, 0, NULL) == QF_INVALID);
    qf_source_free(source);
    qf_sink_free(sink);
    qf_channel_free(opened);
    qf_channel_free(channel);
    qf_channels_free(reader);
    qf_channels_free(channels);
    return 0;
}
