/*
 * RIST, main profile with AES-128; the buffer of the last word in milliseconds, the granted rate as its largest rate.
 * Messages of 1316 bytes, the size of live streams.
 */
#include "player.h"
#include <librist/librist.h>

static struct rist_ctx *context;
static volatile int connected;

static void on_status(void *unused, struct rist_peer *peer, enum rist_connection_status status)
{
	(void)unused, (void)peer;
	connected |= status == RIST_CONNECTION_ESTABLISHED;
}

static int on_data(void *unused, struct rist_data_block *block)
{
	(void)unused;
	take(block->payload, block->payload_len);
	rist_receiver_data_block_free2(&block);
	return 0;
}

static void send_message(const void *message, size_t length)
{
	struct rist_data_block block = { .payload = message, .payload_len = length };
	if (rist_sender_data_write(context, &block) < 0)
		fail("rist_sender_data_write failed");
}

int main(int argc, char **argv)
{
	struct rist_peer_config *config = NULL;
	struct rist_peer *peer;
	char url[256];
	begin(argc, argv);
	snprintf(url, sizeof url, "rist://%s%s:%d?buffer=%s&bandwidth=%llu&secret=benchmarks&aes-type=128",
		 plan.sends ? "" : "@", plan.host, plan.port, plan.latency_ms,
		 (unsigned long long)(plan.granted_bps / 1000));
	int failed = plan.sends ? rist_sender_create(&context, RIST_PROFILE_MAIN, 0, NULL)
				: rist_receiver_create(&context, RIST_PROFILE_MAIN, NULL);
	if (failed || rist_parse_address2(url, &config) || rist_peer_create(context, &peer, config))
		fail("librist refused the address");
	rist_connection_status_callback_set(context, on_status, NULL);
	if (!plan.sends)
		rist_receiver_data_callback_set2(context, on_data, NULL);
	if (rist_start(context))
		fail("librist did not start");
	while (plan.sends && !connected)
		usleep(10000);
	listen_to_conductor();
	if (plan.sends)
		send_plan(send_message);
	for (;;)
		pause();
}
