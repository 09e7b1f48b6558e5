/* QualMan's sample program (its section 6.4): the client of a video server reserves memory, network and CPU.
 *
 *   cc sample.c $(pkg-config --cflags --libs qfabric) -o sample
 *   ./sample INTERFACE SERVER TLS HOST FRAMES     receives frames over METP from SERVER, through INTERFACE
 */
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_BYTES 19200 /* 320 x 240 pixels, four in a byte */
#define PIXELS 76800
#define FRAMES_PER_SECOND 10
#define SECOND UINT64_C(1000000000)
#define MEMORY (64 << 20) /* bytes: the text with its libraries, and the buffers */
#define CHECK(call) do { if ((call) != QF_OK) { fprintf(stderr, #call ": %s\n", qf_last_error()); exit(1); } } while (0)

/* Copies the next frame that arrived completely. */
static void receive(const qf_metp *server, unsigned char *decoder_buffer)
{
    qf_metp_message *frame = NULL;
    size_t size = 0, begin, end;
    bool is_complete = false;

    while (!is_complete) {
        CHECK(qf_metp_receive(server, 10 * SECOND, &frame));
        const void *data = qf_metp_message_data(frame, &size);
        if (size != FRAME_BYTES) {
            fprintf(stderr, "no frame of %d bytes arrived within 10 s\n", FRAME_BYTES);
            exit(1);
        }
        is_complete = !qf_metp_message_hole(frame, 0, &begin, &end);
        memcpy(decoder_buffer, data, FRAME_BYTES);
        qf_metp_message_free(frame);
    }
}

static unsigned char packed_probe[FRAME_BYTES], pixels_probe[PIXELS]; /* buffers of the probe */

static unsigned long play(const qf_metp *server, unsigned char *decoder_buffer, unsigned char *display_buffer)
{
    unsigned long brightness = 0;

    receive(server, decoder_buffer);
    for (int i = 0; i < PIXELS; i++) /* decode: unpack four pixels of each byte */
        display_buffer[i] = decoder_buffer[i / 4] >> (6 - 2 * (i % 4)) & 3;
    for (int i = 0; i < PIXELS; i++) /* display: the sum of all pixels stands for a screen */
        brightness += display_buffer[i];
    return brightness;
}

int main(int argc, char **argv)
{
    const uint64_t period_ns = SECOND / FRAMES_PER_SECOND;
    const double rate = 8 * 1.2 * FRAME_BYTES * FRAMES_PER_SECOND; /* a fifth more for headers */
    char network[64], id[QF_CLAIM_SIZE];
    unsigned long brightness = 0;
    uint64_t reserve, locked;
    double utilisation;
    qf_mem *mem;
    qf_allocation *display_buffer, *decoder_buffer;
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract;
    qf_metp *server;
    qf_cpu *cpu = qf_cpu_new();

    if (argc != 6) {
        fprintf(stderr, "usage: %s INTERFACE SERVER TLS HOST FRAMES\n", argv[0]);
        return 2;
    }
    const qf_metp_options options = {.tls = argv[3], .host = argv[4], .service = "film", .partially_reliable = true};
    const int frames = atoi(argv[5]);
    CHECK(qf_metp_open(argv[2], &options, &server));

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
    CHECK(qf_joint_apply(request, &contract));
    CHECK(qf_joint_id(contract, &id));

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
    CHECK(qf_joint_end(contract));
    qf_cpu_free(cpu);
    qf_mem_free(mem);
    qf_joint_free(contract);
    qf_metp_free(server);
    qf_joint_request_free(request);
    return 0;
}
