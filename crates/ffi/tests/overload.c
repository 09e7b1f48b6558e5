/* Jobs that cost more than the daemon can grant: the callback reports the overload, the task lowers its cost, and
 * the callback reports the end of the overload. */
#include <qfabric.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define TRIAL 60
/* Far more jobs than the test needs; a count, not a time. */
#define MOST_JOBS 3000

static struct {
    int begun, ended;
    qf_overload overload;
} seen;

static void changed(void *task, const qf_overload *overload)
{
    qf_overload now;

    CHECK(qf_get_overload(task, &now) == QF_OK);
    if (overload) {
        seen.begun++, seen.overload = *overload;
        CHECK(now.wanted > now.granted);
    } else {
        seen.ended++;
        CHECK(now.wanted == 0);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void burn(uint64_t ns)
{
    for (uint64_t until = cpu_ns() + ns; cpu_ns() < until;)
        ;
}

static void suggestions(qf_session *task)
{
    uint64_t costs[TRIAL];
    double hints[TRIAL];
    qf_suggestion found;

    for (int k = 0; k < TRIAL; k++)
        costs[k] = (k % 3 ? 4 : 12) * MS, hints[k] = (double)costs[k];
    CHECK(qf_suggest(task, costs, NULL, 5, &found) == QF_INVALID && strstr(qf_last_error(), "24"));
    CHECK(qf_suggest(task, NULL, NULL, TRIAL, &found) == QF_INVALID);
    CHECK(qf_suggest(task, costs, NULL, TRIAL, NULL) == QF_INVALID);
    CHECK(qf_suggest(task, costs, NULL, TRIAL, &found) == QF_OK);
    CHECK(strcmp(found.predictor, "mma:3,3") == 0 && found.in_target > 0.9);
    CHECK(found.max_bandwidth > 0.3 && found.max_bandwidth <= 0.95 && found.class_b <= found.max_bandwidth);
    CHECK(qf_set_predictor(task, found.predictor) == QF_OK);
    CHECK(qf_set_profile(task, costs, hints, TRIAL) == QF_OK && qf_set_profile(task, NULL, NULL, 1) == QF_INVALID);
}

int main(void)
{
    qf_session *task = NULL;
    qf_overload now;
    int64_t late = 0;

    CHECK(qf_init(&task) == QF_OK);
    CHECK(qf_set_task_period(task, 20 * MS) == QF_OK);
    suggestions(task);
    CHECK(qf_set_predictor(task, "ma:2") == QF_OK && qf_set_max_bandwidth(task, 0.9) == QF_OK);
    CHECK(qf_get_overload(task, &now) == QF_STATE && qf_on_overload(NULL, changed, NULL) == QF_INVALID);
    CHECK(qf_on_overload(task, changed, task) == QF_OK);
    CHECK(qf_start(task) == QF_OK);
    for (int k = 0; k < MOST_JOBS && !seen.ended; k++) {
        CHECK(qf_wait_for_next_job(task) == QF_OK);
        burn((seen.begun ? 2 : 14) * MS);
        CHECK(qf_end_cycle(task) == QF_OK);
    }
    CHECK(seen.begun == 1 && seen.ended == 1);
    CHECK(seen.overload.wanted > 0.6 && seen.overload.granted <= 0.5);
    CHECK(qf_get_predicted_lateness(task, &late) == QF_OK && late >= 0);
    CHECK(qf_get_predicted_lateness(task, NULL) == QF_INVALID && qf_skip_job(task) == QF_OK);
    qf_free(task);
    return 0;
}
