/* QualMan's sample program (its section 6.4): the client of a video server reserves memory, network and CPU.
 *
 *   cc sample.c $(pkg-config --cflags --libs qfabric) -o sample
 *   ./sample INTERFACE PORT FRAMES        receives frames at PORT over UDP
 */
#include <arpa/inet.h>
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FRAME_BYTES 19200 /* 320 x 240 pixels, four in a byte */
#define PIXELS 76800
#define FRAMES_PER_SECOND 10
#define MEMORY (64 << 20) /* bytes: the text with its libraries, and the buffers */
#define CHECK(call) do { if ((call) != QF_OK) { fprintf(stderr, #call ": %s\n", qf_last_error()); exit(1); } } while (0)

static int listen_at(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
    struct timeval patience = {.tv_sec = 10};
    int server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(server, (struct sockaddr *)&address, sizeof(address)) != 0
        || setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0) {
        perror("cannot receive");
        exit(1);
    }
    return server;
}

static unsigned char packed_probe[FRAME_BYTES], pixels_probe[PIXELS]; /* buffers of the probe */

static unsigned long play(int server, unsigned char *decoder_buffer, unsigned char *display_buffer)
{
    unsigned long brightness = 0;
    if (recv(server, decoder_buffer, FRAME_BYTES, 0) != FRAME_BYTES) {
        fprintf(stderr, "no whole frame arrived within 10 s\n");
        exit(1);
    }
    for (int i = 0; i < PIXELS; i++) /* decode: unpack four pixels of each byte */
        display_buffer[i] = decoder_buffer[i / 4] >> (6 - 2 * (i % 4)) & 3;
    for (int i = 0; i < PIXELS; i++) /* display: the sum of all pixels stands for a screen */
        brightness += display_buffer[i];
    return brightness;
}

int main(int argc, char **argv)
{
    const uint64_t period_ns = UINT64_C(1000000000) / FRAMES_PER_SECOND;
    const double rate = 8 * 1.2 * FRAME_BYTES * FRAMES_PER_SECOND; /* a fifth more for headers */
    char network[64], id[QF_CLAIM_SIZE];
    unsigned long brightness = 0;
    uint64_t reserve, locked;
    double utilisation;
    qf_mem *mem;
    qf_allocation *display_buffer, *decoder_buffer;
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *connection;
    qf_cpu *cpu = qf_cpu_new();

    if (argc != 4) {
        fprintf(stderr, "usage: %s INTERFACE PORT FRAMES\n", argv[0]);
        return 2;
    }
    int server = listen_at(atoi(argv[2])), frames = atoi(argv[3]);

    CHECK(qf_cpu_probe_on(cpu, period_ns)); /* begin of the probe */
    for (int i = 0; i < 5; i++) {
        play(server, packed_probe, pixels_probe);
        qf_cpu_yield(cpu); /* marks the end of one iteration */
    }
    CHECK(qf_cpu_probe_off(cpu, &utilisation)); /* end of the probe */
    utilisation += 0.02; /* longer iterations may follow */

    /* All three resources, or none. */
    snprintf(network, sizeof(network), "network %.15s in", argv[1]);
    CHECK(qf_joint_want(request, NULL, "cpu", utilisation, utilisation));
    CHECK(qf_joint_want(request, NULL, "memory", MEMORY, MEMORY));
    CHECK(qf_joint_want(request, NULL, network, rate, rate));
    CHECK(qf_joint_apply(request, &connection));
    CHECK(qf_joint_id(connection, &id));

    CHECK(qf_mem_connect(&mem));
    CHECK(qf_mem_reserve_from(mem, id, MEMORY, &reserve));
    CHECK(qf_mem_lock_text(mem, reserve, &locked));
    CHECK(qf_mem_alloc(mem, reserve, PIXELS, &display_buffer));
    CHECK(qf_mem_alloc(mem, reserve, FRAME_BYTES, &decoder_buffer));
    unsigned char *pixels = qf_allocation_data(display_buffer), *packed = qf_allocation_data(decoder_buffer);

    CHECK(qf_cpu_reserve_from(cpu, id, getpid(), utilisation, period_ns));
    CHECK(qf_cpu_start(cpu));
    for (int i = 0; i < frames; i++) {
        brightness = play(server, packed, pixels);
        qf_cpu_yield(cpu);
    }
    printf("%d frames, brightness %lu, %.3f CPU, contract %s\n", frames, brightness, utilisation, id);

    CHECK(qf_cpu_free_reserve(cpu));
    qf_allocation_free(display_buffer);
    qf_allocation_free(decoder_buffer);
    CHECK(qf_mem_free_reserve(mem, reserve));
    CHECK(qf_joint_end(connection));
    qf_cpu_free(cpu);
    qf_mem_free(mem);
    qf_joint_free(connection);
    qf_joint_request_free(request);
    return 0;
}
