/* Two metrics with utility functions, and a host that is asked to save energy. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

#define RATE "int utility(int rate) { return rate * 4; }"
#define COST "int cpu(int rate) { return rate * 10000; }"

int main(void)
{
    qf_session *task = NULL, *alone = NULL;
    qf_energy_saving saving = {0};

    CHECK(qf_init(&task) == QF_OK && qf_set_task_period(task, 40 * MS) == QF_OK);
    CHECK(qf_add_metric(task, "frame_rate", 30, 5, 5, RATE, COST) == QF_INVALID && strstr(qf_last_error(), "30"));
    CHECK(qf_add_metric(task, "frame_rate", 5, 25, 5, RATE, NULL) == QF_INVALID);
    CHECK(qf_add_metric(task, "frame_rate", 5, 25, 5, "int utility(int rate) { return", COST) == QF_OK);
    CHECK(qf_start(task) == QF_REFUSED && strstr(qf_last_error(), "frame_rate"));
    qf_free(task);

    CHECK(qf_init(&task) == QF_OK && qf_set_task_period(task, 40 * MS) == QF_OK);
    CHECK(qf_add_metric(task, "frame_rate", 5, 25, 5, RATE, COST) == QF_OK);
    CHECK(qf_add_metric(task, "frame_rate", 5, 25, 5, RATE, COST) == QF_INVALID && strstr(qf_last_error(), "twice"));
    CHECK(qf_add_metric(task, "width", 160, 640, 160, RATE, COST) == QF_OK);
    CHECK(qf_save_energy(task, &saving) == QF_STATE && qf_checkpoint(task, 0.5, 0) == QF_STATE);
    CHECK(qf_start(task) == QF_OK && qf_save_energy(task, &saving) == QF_OK && qf_save_energy(task, NULL) == QF_OK);
    CHECK(saving.clock_part > 0 && saving.clock_part <= 1 && saving.limited <= 1);
    CHECK(qf_checkpoint(task, 0.5, 0) == QF_OK && qf_checkpoint(task, 1.0, 255) == QF_OK);
    CHECK(qf_checkpoint(task, 1.5, 0) == QF_INVALID && strstr(qf_last_error(), "1.5"));
    CHECK(qf_checkpoint(task, 0.0 / 0.0, 0) == QF_INVALID && qf_checkpoint(NULL, 0.5, 0) == QF_INVALID);
    CHECK(qf_add_metric(task, "height", 120, 480, 120, RATE, COST) == QF_STATE);

    CHECK(qf_init_alone(&alone) == QF_OK && qf_set_task_period(alone, 40 * MS) == QF_OK && qf_start(alone) == QF_OK);
    CHECK(qf_checkpoint(alone, 0.5, 3) == QF_OK);
    CHECK(qf_save_energy(alone, &saving) == QF_STATE && strstr(qf_last_error(), "daemon"));
    qf_free(alone);
    qf_free(task);
    return 0;
}
