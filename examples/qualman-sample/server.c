/* The video server of QualMan's sample program: sends ten frames in a second to one client, over METP.
 *
 *   cc server.c $(pkg-config --cflags --libs qfabric) -o server
 *   ./server INTERFACE ADDRESS TLS HOST     waits at ADDRESS for the client, which is reached through INTERFACE
 */
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_BYTES 19200 /* 320 x 240 pixels, four in a byte */
#define MS UINT64_C(1000000)
#define PERIOD (100 * MS)
#define DELAY (300 * MS) /* the longest time from end to end */
#define RATE 1843200     /* bits per second: a fifth more than the frames, for headers */
#define CHECK(call) do { if ((call) != QF_OK) { fprintf(stderr, #call ": %s\n", qf_last_error()); exit(1); } } while (0)

int main(int argc, char **argv)
{
    static unsigned char frame[FRAME_BYTES];
    uint64_t reserved;
    qf_metp_server *server;
    qf_metp *client;
    qf_metp_end end;

    if (argc != 5) {
        fprintf(stderr, "usage: %s INTERFACE ADDRESS TLS HOST\n", argv[0]);
        return 2;
    }
    const qf_metp_options options = {.tls = argv[3], .host = argv[4], .service = "film", .partially_reliable = true};
    memset(frame, 0x55, sizeof(frame)); /* pixels of the brightness 1 */
    CHECK(qf_metp_register(argv[2], &options, &server));
    printf("listens on port %u\n", qf_metp_server_port(server));
    fflush(stdout);
    CHECK(qf_metp_accept(server, 60000 * MS, &client));
    if (client == NULL) {
        fprintf(stderr, "no client came within 60 s\n");
        return 1;
    }
    CHECK(qf_metp_reserve(client, argv[1], RATE, PERIOD, &reserved));
    printf("a client is served, %llu bit/s are reserved\n", (unsigned long long)reserved);
    /* While the queue is full, frames are left out; QF_STATE is the end. */
    while (qf_metp_send(client, QF_FRAME_I, frame, sizeof(frame), DELAY, 0, NULL) != QF_STATE)
        usleep(PERIOD / 1000);
    CHECK(qf_metp_wait_for_end(client, 1000 * MS, &end));
    printf("%s\n", end == QF_METP_CLOSED_BY_PEER ? "the client has closed the connection" : "the client is gone");
    qf_metp_free(client);
    qf_metp_server_free(server);
    return 0;
}
