/* Handlers: after qf_sink_free the application may free the handler's data; a handler may free its own sink, and
 * may poll. */
#include <poll.h>
#include <pthread.h>
#include <qfabric.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define PATIENCE (60000 * MS)

static qf_channels *channels;
static atomic_bool stop;

struct slow {
    sem_t inside, may_leave;
    atomic_int left;
};

static void slow(void *data, const char *host, const qf_event *event)
{
    struct slow *slow = data;

    (void)host, (void)event;
    sem_post(&slow->inside);
    sem_wait(&slow->may_leave);
    usleep(100000); /* a wrong qf_sink_free, one that does not wait, would return meanwhile */
    slow->left++;
}

static void *polls(void *unused)
{
    while (!stop)
        CHECK(qf_channels_poll(channels, 10 * MS, NULL) == QF_OK);
    return unused;
}

static void submit(qf_source *source)
{
    int number = 1;

    CHECK(qf_channel_submit(source, 0, &number, sizeof number, 0, NULL) == QF_OK);
}

/* Frees a sink while another thread runs its handler. */
static void freed_by_another_thread(qf_channel *channel, qf_source *source)
{
    struct slow *data = calloc(1, sizeof *data);
    qf_sink *sink = NULL;
    pthread_t thread;

    sem_init(&data->inside, 0, 0), sem_init(&data->may_leave, 0, 0);
    CHECK(qf_channel_sink_subscribe(channel, slow, data, &sink) == QF_OK);
    CHECK(pthread_create(&thread, NULL, polls, NULL) == 0);
    submit(source);
    sem_wait(&data->inside);
    sem_post(&data->may_leave);
    qf_sink_free(sink);
    CHECK(data->left == 1);
    memset(data, 0xff, sizeof *data);
    free(data);
    submit(source);
    stop = true;
    CHECK(pthread_join(thread, NULL) == 0);
}

struct once {
    qf_sink *sink;
    int calls;
};

static void once(void *data, const char *host, const qf_event *event)
{
    struct once *once = data;
    size_t handled = 1;

    (void)host, (void)event;
    once->calls++;
    CHECK(qf_channels_poll(channels, 0, &handled) == QF_OK && handled == 0);
    qf_sink_free(once->sink);
}

/* A handler polls and frees its own sink: it is called once, although two events wait. */
static void freed_within(qf_channel *channel, qf_source *source)
{
    struct once data = { 0 };

    CHECK(qf_channel_sink_subscribe(channel, once, &data, &data.sink) == QF_OK);
    submit(source);
    submit(source);
    while (data.calls == 0)
        CHECK(qf_channels_poll(channels, PATIENCE, NULL) == QF_OK);
    submit(source);
    CHECK(qf_channels_poll(channels, 100 * MS, NULL) == QF_OK && data.calls == 1);
}

/* The daemon refuses an event that is too short for its structure. The refusal, which no function returns, does not
 * keep the descriptor readable. */
static void refused(qf_source *source)
{
    struct pollfd ready = { .fd = qf_channels_fd(channels), .events = POLLIN };

    CHECK(qf_channel_submit(source, 0, "x", 1, 0, NULL) == QF_OK);
    CHECK(poll(&ready, 1, 60000) == 1);
    CHECK(qf_channels_poll(channels, 0, NULL) == QF_OK && poll(&ready, 1, 0) == 0);
}

static void connection_freed_within(void *data, const char *host, const qf_event *event)
{
    (void)host, (void)event;
    qf_channels_free(channels);
    *(int *)data = 1;
}

int main(void)
{
    qf_channel *channel = NULL;
    qf_source *source = NULL;
    qf_sink *sink = NULL;
    int freed = 0;

    CHECK(qf_channels_connect(&channels) == QF_OK);
    CHECK(qf_channel_create(channels, "handled", "struct frame { int number; };", &channel) == QF_OK);
    CHECK(qf_channel_source_subscribe(channel, &source) == QF_OK);
    refused(source);
    freed_by_another_thread(channel, source);
    freed_within(channel, source);
    CHECK(qf_channel_sink_subscribe(channel, connection_freed_within, &freed, &sink) == QF_OK);
    submit(source);
    while (!freed)
        CHECK(qf_channels_poll(channels, PATIENCE, NULL) == QF_OK);
    qf_sink_free(sink);
    qf_source_free(source);
    qf_channel_free(channel);
    return 0;
}
