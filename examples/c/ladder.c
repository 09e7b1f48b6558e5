/* An encoder gives up quality, then size, while its rate is too low, and takes both back in reverse order.
 *
 *   cc ladder.c $(pkg-config --cflags --libs qfabric) -o ladder
 *   ./ladder 20 12 20 20 20 20 20 20 20    the rate of each second; 20 frames per second are wanted
 */
#include <inttypes.h>
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND_NS UINT64_C(1000000000)
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

int main(int argc, char **argv)
{
    const int64_t qualities[] = {80, 60, 40, 20}, widths[] = {640, 320}; /* from the best to the minimum */
    const qf_dimension dimensions[] = {{"quality", qualities, LENGTH(qualities)}, {"size", widths, LENGTH(widths)}};
    const char *reasons[] = {"too slow", "kept", "asked for"};
    qf_ladder_terms terms;
    qf_ladder *ladder = NULL;

    qf_ladder_default_terms(20.0, &terms); /* wanted: 20 frames per second */
    if (qf_ladder_new(dimensions, LENGTH(dimensions), &terms, &ladder) != QF_OK) {
        fprintf(stderr, "qf_ladder_new: %s\n", qf_last_error());
        return 1;
    }
    for (int second = 1; second < argc; second++) {
        qf_step step;
        int64_t quality = 0, width = 0;

        qf_ladder_on_rate(ladder, atof(argv[second]), second * SECOND_NS, &step);
        if (step.from == step.to)
            continue;
        qf_ladder_level(ladder, "quality", &quality);
        qf_ladder_level(ladder, "size", &width);
        printf("second %d, %s: quality %" PRId64 ", size %" PRId64 "\n", second, reasons[step.reason], quality, width);
    }
    qf_ladder_free(ladder);
    return 0;
}
