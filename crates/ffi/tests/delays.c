/* The messages of a program renew the stored profile of delays. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

#define LARGEST 60000

int main(int argc, char **argv)
{
    qf_delays *delays = NULL;
    bool written = true;
    int count = 0;

    CHECK(argc == 2);
    CHECK(qf_delays_open("/nowhere/net.json", LARGEST, 5000000, &delays) == QF_INVALID && !delays);
    CHECK(strstr(qf_last_error(), "/nowhere/net.json") && strstr(qf_last_error(), "qfabric net profile"));
    CHECK(qf_delays_open(argv[1], LARGEST, 5000000, &delays) == QF_OK);
    CHECK(qf_delays_lost(delays, LARGEST, &written) == QF_OK && !written);
    for (int message = 0; message < 99; message++) {
        CHECK(qf_delays_acknowledged(delays, LARGEST, 21 * MS, &written) == QF_OK);
        count += written;
        CHECK(qf_delays_acknowledged(delays, 100, 0, NULL) == QF_OK); /* too small to count */
    }
    CHECK(count == 0);
    CHECK(qf_delays_acknowledged(delays, LARGEST, 21 * MS, &written) == QF_OK && written);

    CHECK(qf_delays_change_rate(delays, 6000000) == QF_OK && qf_delays_shortest_round_trip(delays, 4 * MS) == QF_OK);
    for (int message = 0; message < 100; message++)
        CHECK(qf_delays_acknowledged(delays, LARGEST, 32 * MS, &written) == QF_OK);
    CHECK(written);

    CHECK(qf_delays_lost(NULL, LARGEST, &written) == QF_INVALID && qf_delays_change_rate(NULL, 1) == QF_INVALID);
    CHECK(qf_delays_open(NULL, LARGEST, 1, &delays) == QF_INVALID);
    CHECK(qf_delays_open(argv[1], LARGEST, 1, NULL) == QF_INVALID);
    qf_delays_free(delays);
    qf_delays_free(NULL);
    return 0;
}
