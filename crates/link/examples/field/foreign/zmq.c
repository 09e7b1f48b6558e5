/* ZeroMQ: PUB and SUB over TCP. zmq PART zmq NET SIZE ... (see play.rs). */
#include "player.h"
#include <zmq.h>

static void *context, *out, *in;
static char address[2][64], bytes[65536];
static int size;

static void *opened(int kind, const char *at, int here)
{
	void *s = zmq_socket(context, kind);
	if (kind == ZMQ_SUB)
		zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
	if (here ? zmq_bind(s, at) : zmq_connect(s, at))
		exit(1);
	return s;
}

static void submit(void) { zmq_send(out, bytes, size, 0); }

static void trip(void)
{
	submit();
	if (zmq_recv(in, bytes, sizeof bytes, 0) < 0)
		exit(1);
}

static void wait_for(int sinks)
{
	/* An XPUB socket receives subscriptions; with `verbose` it receives each one, repeated ones included. */
	int verbose = 1;
	zmq_setsockopt(out, ZMQ_XPUB_VERBOSE, &verbose, sizeof verbose);
	say("ready");
	for (int i = 0; i < sinks; i++)
		zmq_recv(out, bytes, sizeof bytes, 0);
}

int main(int argc, char **argv)
{
	begin();
	context = zmq_ctx_new();
	zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 1023);
	for (int i = 0; i < 2; i++)
		snprintf(address[i], sizeof address[i], "tcp://%s.1:%d", argv[3], 7700 + i);
	size = atoi(argv[4]);
	if (!strcmp(argv[1], "echo")) {
		out = opened(ZMQ_PUB, address[0], 1);
		in = opened(ZMQ_SUB, address[1], 1);
		say("ready");
		for (;;) {
			int length = zmq_recv(in, bytes, sizeof bytes, 0);
			zmq_send(out, bytes, length, 0);
		}
	}
	if (!strcmp(argv[1], "ping")) {
		in = opened(ZMQ_SUB, address[0], 0);
		out = opened(ZMQ_PUB, address[1], 0);
		sleep(1);
		report_trips(atoi(argv[5]), trip);
	}
	if (!strcmp(argv[1], "source")) {
		out = opened(ZMQ_XPUB, address[0], 1);
		wait_for(atoi(argv[5]));
		usleep(700000);
		report_cost(atoi(argv[6]), atoi(argv[7]), submit);
	}
	if (!strcmp(argv[1], "sinks")) {
		int sinks = atoi(argv[5]);
		zmq_pollitem_t *items = calloc(sinks, sizeof *items);
		for (int i = 0; i < sinks; i++)
			items[i] = (zmq_pollitem_t){ opened(ZMQ_SUB, address[0], 0), 0, ZMQ_POLLIN, 0 };
		for (;;) {
			zmq_poll(items, sinks, -1);
			for (int i = 0; i < sinks; i++)
				while (zmq_recv(items[i].socket, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0)
					;
		}
	}
	pause();
}
