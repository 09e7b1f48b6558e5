/* Computation times are stored under a key and found by it: for a reservation, and as start values of a task. */
#define _POSIX_C_SOURCE 200809L
#include <qfabric.h>
#include <string.h>

#include "check.h"

#define NAME "player,fps=25,size=640x480"

int main(int argc, char **argv)
{
    uint64_t costs[] = {3 * MS, 5 * MS}, mean = 1;
    size_t jobs = 1;
    double utilisation = 0;
    qf_session *task = NULL;
    qf_cpu *cpu = qf_cpu_new();

    CHECK(argc == 2 && setenv("XDG_DATA_HOME", argv[1], 1) == 0);
    CHECK(qf_profile_find(NAME, &mean, &jobs) == QF_OK && mean == 0 && jobs == 0);
    CHECK(qf_profile_store(NAME, costs, NULL, 2) == QF_OK);
    CHECK(qf_profile_find("player,size=640x480,fps=25", &mean, &jobs) == QF_OK && mean == 4 * MS && jobs == 2);
    CHECK(qf_profile_find("player", &mean, &jobs) == QF_OK && jobs == 0);

    CHECK(qf_cpu_probe_on(cpu, 20 * MS) == QF_OK && qf_cpu_yield(cpu) == QF_OK);
    CHECK(qf_cpu_probe_store(cpu, "player", &utilisation) == QF_OK && utilisation > 0);
    CHECK(qf_profile_find("player", &mean, &jobs) == QF_OK && jobs == 1 && mean > 0);
    CHECK(qf_cpu_probe_store(cpu, "player", &utilisation) == QF_INVALID && strstr(qf_last_error(), "no jobs"));

    CHECK(qf_init_alone(&task) == QF_OK && qf_set_task_period(task, 40 * MS) == QF_OK);
    CHECK(qf_use_profile(task, "player,fps=50") == QF_INVALID && strstr(qf_last_error(), NAME));
    CHECK(qf_use_profile(task, NAME) == QF_OK && qf_start(task) == QF_OK);

    CHECK(qf_profile_store("a/b", costs, NULL, 2) == QF_INVALID && strstr(qf_last_error(), "a/b"));
    CHECK(strcmp(qf_last_code(), "invalid_profile_name") == 0);
    CHECK(qf_profile_store(NAME, costs, NULL, 0) == QF_INVALID && qf_profile_store(NAME, NULL, NULL, 1) == QF_INVALID);
    CHECK(qf_profile_find(NULL, &mean, &jobs) == QF_INVALID && qf_profile_find(NAME, NULL, &jobs) == QF_INVALID);
    qf_free(task);
    qf_cpu_free(cpu);
    return 0;
}
