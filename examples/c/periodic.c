/* A periodic task under Q-Fabric, as in AQuoSA's Figure 6.
 *
 *   cc periodic.c $(pkg-config --cflags --libs qfabric) -o periodic
 *   ./periodic [jobs]        with `qfabric daemon` running
 *
 * Each job works for a few milliseconds, every twelfth job three times as long. The program gives the work of the
 * next job as a hint beforehand.
 */
#include <inttypes.h>
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MS UINT64_C(1000000)

static int failed(const char *call)
{
    fprintf(stderr, "%s: %s\n", call, qf_last_error());
    return 1;
}

/* Work of job k, in units of 2 ms. */
static double units(uint64_t k)
{
    return k % 12 == 0 ? 3.0 : 1.0;
}

static void work(double units)
{
    clock_t until = clock() + (clock_t)(units * 0.002 * CLOCKS_PER_SEC);
    while (clock() < until)
        ;
}

int main(int argc, char **argv)
{
    uint64_t jobs = argc > 1 ? strtoull(argv[1], NULL, 10) : 50;
    qf_session *task = NULL;
    qf_grant grant;
    qf_quality quality;

    if (qf_init(&task) != QF_OK)
        return failed("qf_init");
    qf_set_name(task, "periodic.c");
    qf_set_task_period(task, 40 * MS);
    qf_set_server_period(task, 10 * MS);
    qf_set_max_bandwidth(task, 0.4);
    if (qf_set_predictor(task, "hint:24") != QF_OK || qf_set_controller(task, "left") != QF_OK)
        return failed("qf_set_predictor, qf_set_controller");
    if (qf_start(task) != QF_OK)
        return failed("qf_start");

    for (uint64_t k = 0; k < jobs; k++) {
        work(units(k));
        qf_end_cycle_hint(task, units(k + 1));
        qf_wait_for_next_job(task);
    }

    qf_get_grant(task, &grant);
    qf_get_quality(task, &quality);
    printf("%" PRIu64 " jobs, %" PRIu64 " missed; now %.2f ms in every %.2f ms\n", quality.jobs, quality.misses,
           grant.budget_ns / 1e6, grant.period_ns / 1e6);
    if (qf_end(task) != QF_OK)
        return failed("qf_end");
    qf_free(task);
    return 0;
}
