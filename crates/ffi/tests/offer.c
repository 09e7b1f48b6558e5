/* A loan: one host refuses, another host offers; the program reads the offer, claims the loan, and gives one back.
 *
 * QFABRIC_SOCKET is the socket of the full host; the argument is the socket of the other host, beta.
 */
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void want(qf_session *task)
{
    CHECK(qf_set_task_period(task, 40 * MS) == QF_OK && qf_set_max_bandwidth(task, 0.3) == QF_OK);
    CHECK(qf_set_class(task, "A", 0.3) == QF_OK);
}

int main(int argc, char **argv)
{
    qf_session *here = NULL, *there = NULL;
    qf_offer offer, again;
    qf_grant grant;
    uint64_t memory = 1, rate = 1;
    char link[16] = "x";

    CHECK(argc == 2 && qf_init(&here) == QF_OK && qf_init_at(argv[1], &there) == QF_OK);
    want(here);
    want(there);
    CHECK(qf_last_offer(&offer) == QF_STATE && strstr(qf_last_error(), "no other host"));

    CHECK(qf_start(here) == QF_REFUSED && strstr(qf_last_error(), "beta"));
    CHECK(qf_last_offer(NULL) == QF_INVALID && qf_last_offer(&offer) == QF_STATE);
    CHECK(qf_start(here) == QF_REFUSED && qf_last_offer(&offer) == QF_OK);
    CHECK(strcmp(offer.host, "beta") == 0 && strncmp(offer.claim, "alpha:", 6) == 0);
    CHECK(qf_start(here) == QF_REFUSED && qf_last_offer_memory(&memory) == QF_OK && memory == 0);
    CHECK(qf_start(here) == QF_REFUSED && qf_last_offer_rate(&rate, link) == QF_OK && rate == 0 && !link[0]);
    /* The other host has no open link, so it has no room for this loan. */
    CHECK(qf_start_with_rate(here, 2000000) == QF_REFUSED && qf_last_offer_rate(&rate, link) == QF_STATE);
    CHECK(qf_start(here) == QF_REFUSED && qf_last_offer(&offer) == QF_OK);
    CHECK(offer.share == 0.3 && offer.held_ns > 20000 * MS && offer.held_ns <= 30000 * MS);
    CHECK(qf_claim(there, "alpha:1") == QF_REFUSED && qf_last_offer(&again) == QF_STATE);
    CHECK(qf_claim(there, offer.claim) == QF_OK && qf_get_grant(there, &grant) == QF_OK);
    CHECK(qf_claim(there, offer.claim) == QF_STATE && qf_end(there) == QF_OK);

    /* The first host learns that its loan was claimed, and gets a new offer. */
    do {
        CHECK(qf_start(here) == QF_REFUSED && qf_last_offer(&again) == QF_OK);
    } while (strcmp(again.claim, offer.claim) == 0);
    CHECK(qf_give_back(here, offer.claim) == QF_REFUSED && strstr(qf_last_error(), "no offer"));
    CHECK(qf_give_back(here, again.claim) == QF_OK && qf_give_back(here, again.claim) == QF_REFUSED);
    printf("%.1f CPU on %s\n", offer.share, offer.host);
    qf_free(here);
    qf_free(there);
    return 0;
}
