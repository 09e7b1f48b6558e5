/* Transcoders of a C program run in their order before each event is submitted; its sink is told which of them. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

#define PATIENCE (60000 * MS)

/* Keeps every second byte; fails if the data is shorter than two bytes. */
static bool halve(void *data, const void *bytes, size_t size, qf_transcoded *transcoded)
{
    const char *from = bytes;

    ++*(int *)data;
    for (size_t at = 0; size >= 2 && at < size; at += 2)
        CHECK(qf_transcoded_write(transcoded, from + at, 1) == QF_OK);
    return size >= 2;
}

/* Larger than an event may be, together with one more byte. */
static char large[(size_t)1 << 20];

/* Appends an exclamation mark; fails if there is one. */
static bool mark(void *data, const void *bytes, size_t size, qf_transcoded *transcoded)
{
    (void)data;
    CHECK(qf_transcoded_write(transcoded, bytes, size) == QF_OK);
    CHECK(qf_transcoded_write(transcoded, "!", 1) == QF_OK);
    CHECK(qf_transcoded_write(transcoded, large, sizeof large) == QF_INVALID);
    return memchr(bytes, '!', size) == NULL;
}

static char last[64], applied[64];
static int seen;

static void show(void *data, const char *host, const qf_event *event)
{
    const char *name;

    (void)data, (void)host;
    CHECK(event->size < sizeof last);
    memcpy(last, event->data, event->size);
    last[event->size] = 0;
    applied[0] = 0;
    for (size_t place = 0; (name = qf_event_transcoded(event, place)) != NULL; place++)
        strcat(strcat(applied, name), " ");
    seen++;
}

static qf_channels *channels;

/* Submits an event, and waits until the sink has it. */
static void expect(qf_source *source, const char *event, const char *data, const char *names)
{
    int before = seen;

    CHECK(qf_channel_submit(source, 0, event, strlen(event), 0, NULL) == QF_OK);
    while (seen == before)
        CHECK(qf_channels_poll(channels, PATIENCE, NULL) == QF_OK);
    CHECK(strcmp(last, data) == 0);
    CHECK(strcmp(applied, names) == 0);
}

/* A chain behind the four bytes of the structure. */
static qf_transcoders *chain(int *calls)
{
    qf_transcoders *made = qf_transcoders_new(4);

    CHECK(qf_transcoders_add(made, "no name", true, halve, calls) == QF_INVALID);
    CHECK(strstr(qf_last_error(), "no name") && qf_transcoders_add(made, "half", true, NULL, NULL) == QF_INVALID);
    CHECK(qf_transcoders_add(made, "half", true, halve, calls) == QF_OK);
    CHECK(qf_transcoders_add(made, "half", true, halve, calls) == QF_INVALID);
    CHECK(qf_transcoders_add(made, "a_mark", false, mark, NULL) == QF_OK);
    return made;
}

int main(void)
{
    qf_channel *channel = NULL;
    qf_source *source = NULL;
    qf_sink *sink = NULL;
    int calls = 0;

    CHECK(qf_channels_connect(&channels) == QF_OK);
    CHECK(qf_channel_create(channels, "transcoded", "struct frame { int number; };", &channel) == QF_OK);
    CHECK(qf_channel_source_subscribe(channel, &source) == QF_OK);
    CHECK(qf_channel_sink_subscribe(channel, show, NULL, &sink) == QF_OK);
    expect(source, "7777abcd", "7777abcd", "");
    CHECK(qf_source_set_transcoders(source, chain(&calls)) == QF_OK);
    expect(source, "7777abcd", "7777ac!", "half a_mark ");
    expect(source, "7777!bcd", "7777!c", "half ");
    CHECK(qf_channel_submit(source, 0, "7777a", 5, 0, NULL) == QF_REFUSED && strstr(qf_last_error(), "half"));
    CHECK(calls == 3 && qf_source_set_transcoders(NULL, chain(&calls)) == QF_INVALID);
    CHECK(qf_source_set_transcoders(source, NULL) == QF_OK);
    expect(source, "7777abcd", "7777abcd", "");
    CHECK(calls == 3 && qf_event_transcoded(NULL, 0) == NULL);
    qf_transcoders_free(chain(&calls));
    qf_transcoders_free(NULL);
    qf_source_free(source);
    qf_sink_free(sink);
    qf_channel_free(channel);
    qf_channels_free(channels);
    return 0;
}
