/* A service and its client in one process: messages in both directions, a switched mode, the end, and refusals. The
 * argument is the folder of certificates. */
#include <qfabric.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SECOND 1000000000ull

static void one_message(qf_metp *from, qf_metp *to, const char *text, uint32_t kind)
{
    qf_metp_message *message = NULL;
    uint64_t number = 99;
    size_t size = 0, begin, end;

    CHECK(qf_metp_send(from, kind, text, strlen(text), 0, 5 * SECOND, &number) == QF_OK && number < 99);
    CHECK(qf_metp_receive(to, 20 * SECOND, &message) == QF_OK && message != NULL);
    CHECK(memcmp(qf_metp_message_data(message, &size), text, strlen(text)) == 0 && size == strlen(text));
    CHECK(qf_metp_message_number(message) == number && qf_metp_message_kind(message) == (qf_frame)kind);
    CHECK(!qf_metp_message_hole(message, 0, &begin, &end));
    qf_metp_message_free(message);
}

/* Takes the events so far, each delivered message with its number. */
static void count_events(qf_metp *metp, int *counts)
{
    qf_metp_event event;

    for (;;) {
        CHECK(qf_metp_next_event(metp, 0, &event) == QF_OK);
        if (event.kind == QF_METP_EVENT_NONE)
            return;
        CHECK(event.kind != QF_METP_EVENT_OUTCOME || (event.outcome == QF_METP_OUTCOME_DELIVERED && event.number < 99));
        counts[event.kind]++;
    }
}

/* A child of a fork has no part in the connections and the service, and frees its copies of the handles. */
static void child(qf_metp_server *server, qf_metp *client, qf_metp *accepted)
{
    qf_metp_message *message = NULL;
    qf_metp *other = NULL;

    CHECK(qf_metp_send(client, QF_FRAME_I, "x", 1, 0, 0, NULL) == QF_STATE && strstr(qf_last_error(), "forked"));
    CHECK(qf_metp_receive(accepted, 0, &message) == QF_STATE && qf_metp_finish(client) == QF_STATE);
    CHECK(qf_metp_accept(server, 0, &other) == QF_STATE);
    qf_metp_free(client);
    qf_metp_free(accepted);
    qf_metp_server_free(server);
    _exit(0);
}

static void forks(qf_metp_server *server, qf_metp *client, qf_metp *accepted)
{
    int status = 0;
    pid_t forked = fork();

    CHECK(forked >= 0);
    if (forked == 0)
        child(server, client, accepted);
    CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments)
{
    qf_metp_options wall = {0}, cam = {0};
    qf_metp_server *server = NULL;
    qf_metp *client = NULL, *accepted = NULL;
    qf_metp_message *none = NULL;
    qf_metp_statistics statistics;
    qf_metp_end end;
    int counts[8] = {0};
    char address[32];
    uint64_t size = 60000;

    CHECK(count == 2);
    wall.tls = cam.tls = arguments[1];
    wall.service = cam.service = "film";
    wall.host = "wall";
    cam.host = "cam";

    CHECK(qf_metp_register("127.0.0.1:0", &wall, &server) == QF_OK && qf_metp_server_port(server) > 0);
    CHECK(qf_metp_accept(server, SECOND / 100, &accepted) == QF_OK && accepted == NULL);
    snprintf(address, sizeof address, "127.0.0.1:%u", qf_metp_server_port(server));
    CHECK(qf_metp_open(address, NULL, &client) == QF_INVALID);
    CHECK(qf_metp_open("nonsense", &cam, &client) == QF_INVALID && strstr(qf_last_error(), "HOST:PORT"));
    cam.service = "news";
    CHECK(qf_metp_open(address, &cam, &client) == QF_REFUSED && strstr(qf_last_error(), "no service news"));
    cam.service = "film";
    cam.dscp = 64;
    CHECK(qf_metp_open(address, &cam, &client) == QF_INVALID && strstr(qf_last_error(), "is 64; use 0 to 63"));
    cam.dscp = 46;
    CHECK(qf_metp_open(address, &cam, &client) == QF_OK);
    CHECK(qf_metp_accept(server, 10 * SECOND, &accepted) == QF_OK && accepted != NULL);

    one_message(client, accepted, "a picture", QF_FRAME_I);
    forks(server, client, accepted);
    one_message(accepted, client, "an answer", QF_FRAME_OTHER);
    CHECK(qf_metp_set_partially_reliable(client, true) == QF_OK && qf_metp_set_rate(client, 20000000) == QF_OK);
    one_message(client, accepted, "sound", QF_FRAME_AUDIO);
    CHECK(qf_metp_replace_carrier(client, address, NULL, 10 * SECOND) == QF_OK);
    one_message(client, accepted, "over another carrier", QF_FRAME_B);
    CHECK(qf_metp_replace_carrier(accepted, address, NULL, SECOND) == QF_INVALID);

    CHECK(qf_metp_send(client, 9, "x", 1, 0, 0, NULL) == QF_INVALID);
    CHECK(qf_metp_send(client, QF_FRAME_I, "", 0, 0, 0, NULL) == QF_INVALID);
    CHECK(qf_metp_receive(client, SECOND / 100, &none) == QF_OK && none == NULL);
    CHECK(qf_metp_flush(client, 10 * SECOND) == QF_OK);
    CHECK(qf_metp_read_statistics(client, &statistics) == QF_OK && statistics.messages == 3);
    CHECK(statistics.delivered == 3 && statistics.received == 1);

    CHECK(qf_metp_record_delays(client, "/nonexistent/net-wall.json", &size, 1) == QF_INVALID);
    CHECK(strstr(qf_last_error(), "qfabric net profile"));
    CHECK(qf_metp_record_delays(client, "net-wall.json", NULL, 1) == QF_INVALID);
    CHECK(qf_metp_record_delays(client, "net-wall.json", NULL, 0) == QF_INVALID);

    CHECK(qf_metp_rebind(client, 1, "127.0.0.1:0") == QF_OK);
    CHECK(qf_metp_rebind(client, 9, "127.0.0.1:0") == QF_INVALID && qf_metp_rebind(client, 1, "here") == QF_INVALID);
    one_message(client, accepted, "from another port", QF_FRAME_P);
    CHECK(qf_metp_flush(client, 10 * SECOND) == QF_OK);
    count_events(client, counts);
    CHECK(counts[QF_METP_EVENT_OUTCOME] == 4 && counts[QF_METP_EVENT_CARRIER_ATTACHED] == 2);
    CHECK(qf_metp_next_event(client, 0, NULL) == QF_INVALID);

    CHECK(qf_metp_finish(client) == QF_OK && qf_metp_send(client, QF_FRAME_OTHER, "x", 1, 0, 0, NULL) == QF_STATE);
    CHECK(qf_metp_finish(accepted) == QF_OK);
    CHECK(qf_metp_wait_for_end(client, 20 * SECOND, &end) == QF_OK && end == QF_METP_FINISHED);
    CHECK(qf_metp_receive(client, SECOND, &none) == QF_STATE);
    qf_metp_free(client);
    qf_metp_free(accepted);
    qf_metp_server_free(server);
    return 0;
}
