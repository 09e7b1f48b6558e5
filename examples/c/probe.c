/* Probe, reserve, run: the CPU part of QualMan's sample program (its section 6.4).
 *
 *   cc probe.c $(pkg-config --cflags --libs qfabric) -o probe
 *   ./probe                  probes without a daemon, reserves with one
 */
#include <qfabric.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS UINT64_C(20000000)

static void play_a_frame(void)
{
    clock_t until = clock() + CLOCKS_PER_SEC / 250;
    while (clock() < until)
        ;
}

int main(void)
{
    qf_cpu *cpu = qf_cpu_new();
    double utilisation = 0;

    qf_cpu_probe_on(cpu, PERIOD_NS);
    for (int i = 0; i < 5; i++) {
        play_a_frame();
        qf_cpu_yield(cpu); /* marks the end of one iteration */
    }
    qf_cpu_probe_off(cpu, &utilisation);
    printf("probed: %.2f of one CPU\n", utilisation);

    /* Reserve a fifth more than the mean, for longer iterations. */
    if (qf_cpu_reserve(cpu, getpid(), 1.2 * utilisation, PERIOD_NS) != QF_OK) {
        fprintf(stderr, "qf_cpu_reserve: %s\n", qf_last_error());
        qf_cpu_free(cpu);
        return 1;
    }
    qf_cpu_start(cpu);
    for (int i = 0; i < 50; i++) {
        play_a_frame();
        qf_cpu_yield(cpu);
    }
    printf("reserved: %.2f of one CPU\n", 1.2 * utilisation);
    qf_cpu_free_reserve(cpu);
    qf_cpu_free(cpu);
    return 0;
}
