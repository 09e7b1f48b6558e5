/* The rate of a METP connection: reserved on the link qf0, drawn from a joint contract, and ended by another own address.
 * The argument is the folder of certificates. */
#include <qfabric.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SECOND 1000000000ull
#define PERIOD (40 * MS)

/* The reason of the next revocation. */
static qf_metp_reason revoked(qf_metp *metp)
{
    qf_metp_event event;

    do {
        CHECK(qf_metp_next_event(metp, 20 * SECOND, &event) == QF_OK && event.kind != QF_METP_EVENT_NONE);
    } while (event.kind != QF_METP_EVENT_REVOKED);
    return event.reason;
}

/* A child of a fork that frees its copy of the handle ends neither the connection nor the reservation. */
static void forks(qf_metp *client)
{
    int status = 0;
    qf_metp_event event;
    pid_t forked = fork();

    CHECK(forked >= 0);
    if (forked == 0) {
        qf_metp_free(client);
        _exit(0);
    }
    CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    do {
        CHECK(qf_metp_next_event(client, 0, &event) == QF_OK);
        CHECK(event.kind != QF_METP_EVENT_REVOKED && event.kind != QF_METP_EVENT_CARRIER_LOST);
    } while (event.kind != QF_METP_EVENT_NONE);
}

int main(int count, char **arguments)
{
    qf_metp_options wall = {0}, cam = {0};
    qf_metp_server *server = NULL;
    qf_metp *client = NULL, *accepted = NULL;
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract = NULL;
    char address[32], id[QF_CLAIM_SIZE];
    uint64_t reserved = 0;

    CHECK(count == 2);
    wall.tls = cam.tls = arguments[1];
    wall.service = cam.service = "film";
    wall.host = "wall";
    cam.host = "cam";
    CHECK(qf_metp_register("127.0.0.1:0", &wall, &server) == QF_OK);
    snprintf(address, sizeof address, "127.0.0.1:%u", qf_metp_server_port(server));
    CHECK(qf_metp_open(address, &cam, &client) == QF_OK);
    CHECK(qf_metp_accept(server, 20 * SECOND, &accepted) == QF_OK && accepted != NULL);

    CHECK(qf_metp_reserve(client, "qf9", 4000000, PERIOD, &reserved) == QF_REFUSED);
    CHECK(qf_metp_reserve(client, "qf0", 400000000, PERIOD, &reserved) == QF_REFUSED);
    CHECK(qf_metp_reserve(client, "qf0", 4000000, PERIOD, &reserved) == QF_OK && reserved == 4000000);
    forks(client);
    CHECK(qf_metp_rebind(client, 0, "127.0.0.1:0") == QF_OK);
    CHECK(revoked(client) == QF_METP_REASON_RESERVATION);

    CHECK(qf_joint_want(request, NULL, "network qf0 out", 2e6, 2e6) == QF_OK);
    CHECK(qf_joint_apply(request, &contract) == QF_OK && qf_joint_id(contract, &id) == QF_OK);
    CHECK(qf_metp_reserve_from(client, "nonsense", "qf0", 2000000, PERIOD, NULL) == QF_INVALID);
    CHECK(qf_metp_reserve_from(client, "nobody:7", "qf0", 2000000, PERIOD, NULL) == QF_REFUSED);
    CHECK(qf_metp_reserve_from(client, id, "qf0", 3000000, PERIOD, NULL) == QF_REFUSED);
    CHECK(qf_metp_reserve_from(client, id, "qf0", 2000000, PERIOD, &reserved) == QF_OK && reserved == 2000000);
    CHECK(qf_joint_end(contract) == QF_OK && revoked(client) == QF_METP_REASON_RESERVATION);

    qf_metp_free(client);
    qf_metp_free(accepted);
    qf_metp_server_free(server);
    qf_joint_free(contract);
    qf_joint_request_free(request);
    return 0;
}
