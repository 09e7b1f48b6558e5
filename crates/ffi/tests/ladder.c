/* The ladder: invalid values are refused, a step states its reason, and the calls after a restart. */
#include <math.h>
#include <qfabric.h>
#include <string.h>

#include "check.h"

static const int64_t qualities[] = {80, 40}, widths[] = {640, 320};
static const qf_dimension dimensions[] = {{"quality", qualities, 2}, {"size", widths, 2}};

static void refusals(void)
{
    const qf_dimension twice[] = {dimensions[0], dimensions[0]}, unnamed = {NULL, qualities, 2};
    const qf_dimension without = {"size", NULL, 2}, empty = {"size", widths, 0};
    qf_ladder_terms terms;
    qf_ladder *ladder = NULL;

    CHECK(qf_ladder_default_terms(20.0, NULL) == QF_INVALID && qf_ladder_default_terms(0.0, &terms) == QF_OK);
    CHECK(qf_ladder_new(dimensions, 2, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "the wanted rate is 0"));
    CHECK(qf_ladder_default_terms(20.0, &terms) == QF_OK && terms.wanted == 20.0 && terms.calm_ns == 5000 * MS);
    CHECK(qf_ladder_new(NULL, 2, &terms, &ladder) == QF_INVALID && qf_ladder_new(dimensions, 2, NULL, &ladder) == QF_INVALID);
    CHECK(qf_ladder_new(dimensions, 2, &terms, NULL) == QF_INVALID);
    CHECK(qf_ladder_new(dimensions, 0, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "0 dimensions"));
    CHECK(qf_ladder_new(twice, 2, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "quality twice"));
    CHECK(qf_ladder_new(&unnamed, 1, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "name"));
    CHECK(qf_ladder_new(&without, 1, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "levels of size"));
    CHECK(qf_ladder_new(&empty, 1, &terms, &ladder) == QF_INVALID && strstr(qf_last_error(), "size has 0 levels"));
    CHECK(ladder == NULL);
}

int main(void)
{
    qf_ladder_terms terms;
    qf_ladder *ladder = NULL;
    qf_step step;
    size_t rung = 9;
    int64_t level = 0;
    bool counts = true;

    refusals();
    qf_ladder_default_terms(20.0, &terms);
    CHECK(qf_ladder_new(dimensions, 2, &terms, &ladder) == QF_OK);
    CHECK(qf_ladder_lowest(ladder, &rung) == QF_OK && rung == 2 && qf_ladder_rung(ladder, &rung) == QF_OK && rung == 0);
    CHECK(qf_ladder_relieve(ladder, 0, &counts) == QF_OK && !counts);
    CHECK(qf_ladder_on_rate(ladder, NAN, 500 * MS, &step) == QF_OK && step.from == 0 && step.to == 0);
    CHECK(qf_ladder_on_rate(ladder, 14, 1000 * MS, &step) == QF_OK && step.to == 2 && step.reason == QF_REASON_TOO_SLOW);
    CHECK(qf_ladder_level(ladder, "quality", &level) == QF_OK && level == 40);
    CHECK(qf_ladder_level(ladder, "size", &level) == QF_OK && level == 320);
    CHECK(qf_ladder_level(ladder, "codec", &level) == QF_INVALID && strstr(qf_last_error(), "use quality, size"));
    CHECK(qf_ladder_on_rate(ladder, 1, 900 * MS, &step) == QF_OK && step.from == 2 && step.to == 2);
    for (uint64_t second = 2; second <= 7; second++)
        CHECK(qf_ladder_on_rate(ladder, 20, second * 1000 * MS, &step) == QF_OK);
    CHECK(step.from == 2 && step.to == 1 && step.reason == QF_REASON_KEPT && step.kept_ns == 5000 * MS);
    CHECK(qf_ladder_relieve(ladder, 7000 * MS, &counts) == QF_OK && counts);
    CHECK(qf_ladder_move_to(ladder, 99, 8000 * MS, &step) == QF_OK && step.to == 2 && step.reason == QF_REASON_ASKED);
    CHECK(qf_ladder_on_rate(NULL, 1, 1, &step) == QF_INVALID && qf_ladder_rung(ladder, NULL) == QF_INVALID);
    qf_ladder_free(ladder);
    qf_ladder_free(NULL);
    return 0;
}
