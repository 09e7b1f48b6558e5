/* Limits are read, changed and removed while the daemon runs; a refused change changes nothing. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

int main(void)
{
    qf_session *task = NULL;
    double cpus = 0;

    CHECK(qf_init(&task) == QF_OK);
    CHECK(qf_get_limit(task, QF_LIMIT_USER, 4711, &cpus) == QF_OK && cpus == -1);
    CHECK(qf_get_limit(task, QF_LIMIT_CAPACITY, 0, &cpus) == QF_OK && cpus == 0.5);
    CHECK(qf_set_limit(task, QF_LIMIT_USER, 4711, 0.25) == QF_OK);
    CHECK(qf_get_limit(task, QF_LIMIT_USER, 4711, &cpus) == QF_OK && cpus == 0.25);
    CHECK(qf_set_limit(task, QF_LIMIT_LEVEL, 10, 0.5) == QF_INVALID && strstr(qf_last_error(), "0 (last) to 9"));
    CHECK(qf_set_limit(task, QF_LIMIT_USER, 4711, 5000) == QF_INVALID && strstr(qf_last_error(), "4096"));
    CHECK(qf_set_limit(task, 5, 0, 0.5) == QF_INVALID && strstr(qf_last_error(), "0 to 4"));
    CHECK(qf_get_limit(task, QF_LIMIT_USER, 4711, &cpus) == QF_OK && cpus == 0.25);
    CHECK(qf_get_limit(task, QF_LIMIT_USER, 4711, NULL) == QF_INVALID);
    CHECK(qf_set_limit(task, QF_LIMIT_USER, 4711, -1) == QF_OK);
    CHECK(qf_get_limit(task, QF_LIMIT_USER, 4711, &cpus) == QF_OK && cpus == -1);
    qf_free(task);
    return 0;
}
