/*
 * SRT: live mode, which has deadlines; messages of 1316 bytes, the size of live streams. Its latency is fixed by the
 * last word, its largest rate is the granted rate, and it encrypts, as METP does.
 */
#include "player.h"
#include <arpa/inet.h>
#include <srt/srt.h>

static SRTSOCKET connection;

static void option(SRTSOCKET s, SRT_SOCKOPT name, const void *value, int size)
{
	if (srt_setsockflag(s, name, value, size) == SRT_ERROR)
		fail(srt_getlasterror_str());
}

static SRTSOCKET new_socket(void)
{
	int live = SRTT_LIVE, latency = atoi(plan.latency_ms), payload = MESSAGE, key = 16;
	int64_t most = plan.granted_bps / 8;
	SRTSOCKET s = srt_create_socket();
	option(s, SRTO_TRANSTYPE, &live, sizeof live);
	option(s, SRTO_LATENCY, &latency, sizeof latency);
	option(s, SRTO_PAYLOADSIZE, &payload, sizeof payload);
	option(s, SRTO_MAXBW, &most, sizeof most);
	option(s, SRTO_PBKEYLEN, &key, sizeof key);
	option(s, SRTO_PASSPHRASE, "only for benchmarks", 19);
	return s;
}

static void send_message(const void *message, size_t length)
{
	/* A full buffer blocks. */
	if (srt_send(connection, message, (int)length) == SRT_ERROR)
		fail(srt_getlasterror_str());
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char message[MESSAGE];
	begin(argc, argv);
	address.sin_port = htons((uint16_t)plan.port);
	inet_pton(AF_INET, plan.host, &address.sin_addr);
	srt_startup();
	srt_setloglevel(2 /* critical */);
	SRTSOCKET s = new_socket();
	if (plan.sends) {
		if (srt_connect(s, (struct sockaddr *)&address, sizeof address) == SRT_ERROR)
			fail(srt_getlasterror_str());
		connection = s;
		listen_to_conductor();
		send_plan(send_message);
	}
	if (srt_bind(s, (struct sockaddr *)&address, sizeof address) == SRT_ERROR || srt_listen(s, 1) == SRT_ERROR)
		fail(srt_getlasterror_str());
	listen_to_conductor();
	connection = srt_accept(s, NULL, NULL);
	for (;;) {
		int length = srt_recv(connection, message, sizeof message);
		if (length == SRT_ERROR)
			pause();
		take(message, (size_t)length);
	}
}
