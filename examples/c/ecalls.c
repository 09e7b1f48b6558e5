/* Events in C: register a service, filter with a handler, read shared memory, receive a signal.
 *
 *   cc ecalls.c $(pkg-config --cflags --libs qfabric) -o ecalls
 *   ./ecalls                 needs a daemon
 */
#include <qfabric.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* The event. The daemon gets the same declaration as text. */
struct sample {
    long value;
};
static const char FORMAT[] = "struct sample { long value; };";

/* Runs where the event is raised: only values above the limit pass. */
static const char CODE[] = "attr.seen += 1; return input.value > attr.limit;";

#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        if ((call) != QF_OK) {                                                                                        \
            fprintf(stderr, "%s: %s\n", #call, qf_last_error());                                                      \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

int main(void)
{
    struct qf_ecalls *session = NULL;
    struct qf_service *service = NULL;
    struct qf_subscription *subscription = NULL;
    size_t limit = 0, seen = 0, length = 0;
    sigset_t signals;
    siginfo_t info;

    /* The program waits for the signal with sigwaitinfo(), so it blocks the signal. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    CHECK(qf_ecalls_connect(&session));
    CHECK(qf_register_service(session, "c.sample", "numbers", FORMAT, &service));

    struct ecalls how = { .signal = SIGRTMIN, .process_id = getpid(), .k_code = CODE };
    struct sh_memory memory_up = { .slots = 16 };
    CHECK(qf_ecalls_subscribe(session, "c.sample", &how, &memory_up, &subscription));

    /* A fast user-ECall: a plain store that the next handler call sees. */
    CHECK(qf_ecalls_attribute(session, "limit", &limit));
    CHECK(qf_ecalls_attribute(session, "seen", &seen));
    qf_ecalls_set(session, limit, 2);

    for (long value = 1; value <= 4; value++) {
        struct sample sample = { .value = value };
        CHECK(qf_raise_event(service, -1, &sample, sizeof sample, 0, false));
    }
    for (int i = 0; i < 2; i++) {
        struct sample sample = { 0 };
        CHECK(qf_ecalls_next(subscription, &sample, sizeof sample, 5000000000u, &length, NULL));
        sigwaitinfo(&signals, &info);
        printf("memory %ld, signal %ld\n", sample.value, (long)info.si_value.sival_ptr);
    }
    printf("%u events, %ld seen by the handler\n", qf_ecalls_flag(subscription), (long)qf_ecalls_get(session, seen));

    CHECK(qf_ecalls_unsubscribe(subscription));
    CHECK(qf_unregister_service(service));
    qf_ecalls_free(session);
    return 0;
}
