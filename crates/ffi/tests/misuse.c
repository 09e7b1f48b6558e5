/* Each wrong call returns its status and its text; a task without a daemon works; predictors and controllers in C
 * are called. */
#include <pthread.h>
#include <qfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int observed, predicted, decided;

static void observe(void *data, uint64_t cost_ns, double hint)
{
    (void)data, (void)cost_ns;
    observed += hint != hint || hint == 2.0;
}

static bool predict(void *data, double hint, qf_interval *interval)
{
    (void)data, (void)hint;
    interval->low_ns = 1, interval->high_ns = 2;
    return ++predicted;
}

static bool decide(void *data, const qf_usage *usage, const qf_interval *interval, uint64_t *budget_ns)
{
    decided += data == &decided && usage->finish_ns > 0 && interval && interval->high_ns == 2;
    *budget_ns = 5;
    return true;
}

static int job(void *data, uint64_t k)
{
    *(uint64_t *)data = k;
    return k >= 4; /* late jobs are skipped, possibly this one */
}

static void *elsewhere(void *task)
{
    CHECK(qf_end_cycle(task) == QF_WRONG_THREAD && strstr(qf_last_error(), "another thread"));
    CHECK(qf_end(task) == QF_WRONG_THREAD && qf_free(task) == QF_WRONG_THREAD);
    return NULL;
}

static void *starts(void *task)
{
    CHECK(qf_start(task) == QF_OK && qf_end_cycle(task) == QF_OK);
    return NULL;
}

/* Uses the handle of the running call: a second `&mut` to it would be undefined behaviour. */
static unsigned char busy(void *task, double hint, qf_interval *interval)
{
    qf_grant grant;

    (void)hint, (void)interval;
    CHECK(qf_end_cycle(task) == QF_STATE && strstr(qf_last_error(), "in use"));
    CHECK(qf_get_grant(task, &grant) == QF_STATE && qf_end(task) == QF_STATE && qf_free(task) == QF_STATE);
    predicted++;
    return 0xfe; /* as a function compiled without the header can return */
}

static int frees(void *task, uint64_t k)
{
    (void)k;
    CHECK(qf_free(task) == QF_STATE && strstr(qf_last_error(), "has called this function"));
    return 1;
}

/* Overlapping calls with one handle, and a `bool` with an invalid value. */
static void reentrant(void)
{
    bool (*wrong)(void *, double, qf_interval *);
    unsigned char (*right)(void *, double, qf_interval *) = busy;
    qf_session *task = NULL;
    pthread_t other;

    memcpy(&wrong, &right, sizeof wrong);
    predicted = 0;
    CHECK(qf_init_alone(&task) == QF_OK && qf_set_task_period(task, 4 * MS) == QF_OK);
    CHECK(qf_set_own_predictor(task, observe, wrong, task) == QF_OK);
    CHECK(qf_start(task) == QF_OK && qf_end_cycle(task) == QF_OK && predicted == 1);
    CHECK(qf_start_periodic(task, frees, task) == QF_OK && qf_free(task) == QF_OK);

    CHECK(qf_init_alone(&task) == QF_OK && qf_set_task_period(task, 4 * MS) == QF_OK);
    CHECK(pthread_create(&other, NULL, starts, task) == 0 && pthread_join(other, NULL) == 0);
    CHECK(qf_end_cycle(task) == QF_WRONG_THREAD);
    CHECK(qf_end(task) == QF_OK && qf_free(task) == QF_OK); /* its thread has ended */
}

/* Calls without a session, a connection or an output. */
static void without_session(void)
{
    qf_session *task = NULL;

    CHECK(strlen(qf_version()) >= 5 && strlen(qf_last_error()) == 0 && strlen(qf_last_code()) == 0);
    CHECK(qf_init(NULL) == QF_NO_DAEMON || qf_init(NULL) == QF_INVALID);
    CHECK(qf_init_at(NULL, &task) == QF_INVALID && strstr(qf_last_error(), "null"));
    CHECK(strcmp(qf_last_code(), "invalid_argument") == 0);
    CHECK(qf_init_at("/nowhere", &task) == QF_NO_DAEMON && task == NULL);
    CHECK(qf_init_alone(NULL) == QF_INVALID);
    CHECK(qf_end_cycle(NULL) == QF_INVALID && qf_start(NULL) == QF_INVALID && qf_end(NULL) == QF_INVALID);
    CHECK(qf_claim(NULL, "alpha:1") == QF_INVALID && qf_give_back(NULL, "alpha:1") == QF_INVALID);
    CHECK(qf_get_limit(NULL, QF_LIMIT_USER, 0, NULL) == QF_INVALID && qf_set_limit(NULL, 0, 0, 1) == QF_INVALID);
    CHECK(qf_last_offer(NULL) == QF_STATE && strstr(qf_last_error(), "no other host"));
    qf_free(NULL);
    qf_cpu_free(NULL);
}

/* Options as uninitialised memory can hold them. The values of `bool` are read before the folder, which is missing. */
static void wrong_options(void)
{
    qf_metp_options options = {.tls = "/nowhere", .host = "alpha"};
    qf_metp_server *server = NULL;
    qf_metp *metp = NULL;

    memset((void *)&options.partially_reliable, 0xfe, 1);
    memset((void *)&options.streams, 0xfe, 1);
    CHECK(qf_metp_open("127.0.0.1:1", &options, &metp) != QF_OK && metp == NULL);
    CHECK(qf_metp_register("127.0.0.1:0", &options, &server) != QF_OK && server == NULL);
    CHECK(qf_metp_open("127.0.0.1:1", NULL, &metp) == QF_INVALID && strstr(qf_last_error(), "null"));
}

/* No message came: the size of an earlier one does not stay. */
static void without_message(void)
{
    size_t size = 7;

    CHECK(qf_metp_message_data(NULL, &size) == NULL && size == 0 && qf_metp_message_data(NULL, NULL) == NULL);
}

static void without_ecalls(void)
{
    CHECK(qf_ecalls_connect(NULL) != QF_OK && qf_ecalls_subscribe(NULL, "a.b", NULL, NULL, NULL) == QF_INVALID);
    CHECK(qf_register_service(NULL, NULL, NULL, NULL, NULL) == QF_INVALID);
    CHECK(qf_raise_event(NULL, -1, NULL, 0, 0, false) == QF_INVALID);
    CHECK(qf_ecalls_unsubscribe(NULL) == QF_OK && qf_unregister_service(NULL) == QF_OK);
    CHECK(qf_ecalls_flag(NULL) == 0 && qf_ecalls_get(NULL, 3) == 0 && qf_sockets_active(NULL, 3, NULL, 1) == 0);
    CHECK(qf_ecalls_next(NULL, NULL, 0, 0, NULL, NULL) == QF_INVALID && qf_ecalls_defer(NULL, 1) == QF_INVALID);
    CHECK(qf_ecalls_defer_at(NULL, 1, "delay") == QF_INVALID && qf_ecalls_defer_at(NULL, 1, NULL) == QF_INVALID);
    CHECK(qf_ecalls_defer_at(NULL, 1, "soon") == QF_INVALID && strstr(qf_last_error(), "syscall"));
    CHECK(qf_ecalls_fast_call(NULL, NULL, NULL) == QF_INVALID && strstr(qf_last_error(), "null"));
    CHECK(qf_sockets_add(NULL, -1) == QF_INVALID && strstr(qf_last_error(), "-1"));
    qf_ecalls_set(NULL, 0, 1);
    qf_ecalls_free(NULL);
    qf_sockets_free(NULL);
}

/* A task without a daemon has no jobs before its start and no other hosts. */
static void wrong_order(qf_session *task)
{
    CHECK(qf_end_cycle(task) == QF_STATE && qf_end(task) == QF_STATE);
    CHECK(qf_claim(task, "alpha") == QF_INVALID && strstr(qf_last_error(), "HOST:NUMBER"));
    CHECK(qf_claim(task, NULL) == QF_INVALID && qf_claim(task, "alpha:1") == QF_STATE);
    CHECK(qf_give_back(task, "alpha:1") == QF_STATE && strstr(qf_last_error(), "qf_init_alone"));
}

static void wrong_values(qf_session *task)
{
    CHECK(qf_set_predictor(task, "kalman:3") == QF_INVALID && strstr(qf_last_error(), "mma:3,12"));
    CHECK(qf_set_predictor(task, "\xff\xff") == QF_INVALID && strstr(qf_last_error(), "UTF-8"));
    CHECK(qf_set_controller(task, "up") == QF_INVALID && qf_set_class(task, "D", 0) == QF_INVALID);
    CHECK(qf_set_max_bandwidth(task, -1) == QF_INVALID && qf_set_max_bandwidth(task, 0.0 / 0.0) == QF_INVALID);
    CHECK(qf_set_own_predictor(task, NULL, predict, NULL) == QF_INVALID);
    CHECK(qf_set_service(task, MS, 5, 5) == QF_INVALID && strstr(qf_last_error(), "5/5"));
    CHECK(qf_set_service(task, MS, 1, 0) == QF_INVALID && qf_set_control_place(task, "moon") == QF_INVALID);
    CHECK(qf_set_reclaiming(task, "moon") == QF_INVALID && qf_set_reclaiming(task, "iris") == QF_OK);
}

/* Values that are valid alone, and not together; `qf_start` names the conflict. */
static void wrong_combinations(qf_session *task)
{
    CHECK(qf_set_task_period(task, 0) == QF_OK && qf_start(task) == QF_INVALID);
    CHECK(qf_set_task_period(task, 4 * MS) == QF_OK && qf_set_server_period(task, 3 * MS) == QF_OK);
    CHECK(qf_start(task) == QF_INVALID && strstr(qf_last_error(), "3 ms"));
    CHECK(qf_set_server_period(task, 4 * MS) == QF_OK && qf_set_class(task, "B", 0.1) == QF_OK);
    CHECK(qf_set_max_bandwidth(task, 0.5) == QF_OK && qf_set_priority(task, 3, 7) == QF_OK);
    CHECK(qf_set_service(task, 5 * MS, 1, 5) == QF_OK && qf_set_favour(task, true, true) == QF_OK);
    CHECK(qf_start(task) == QF_INVALID && strstr(qf_last_error(), "5 ms is longer than the period 4 ms"));
    CHECK(qf_set_service(task, MS, 0, 1) == QF_OK && qf_set_fixed(task, 0.3) == QF_OK);
    CHECK(qf_start(task) == QF_INVALID && strstr(qf_last_error(), "leave one of them out"));
    CHECK(qf_set_fixed(task, -1) == QF_INVALID && qf_set_fixed(task, 0) == QF_OK);
    CHECK(qf_set_service(task, 0, 0, 1) == QF_OK && qf_set_favour(task, false, false) == QF_OK);
    CHECK(qf_set_server_period(task, 4 * MS) == QF_OK && qf_set_control_place(task, "user") == QF_OK && qf_set_reclaiming(task, "hard") == QF_OK);
    CHECK(qf_set_recovery(task, 0, 1.0) == QF_OK && qf_start(task) == QF_INVALID);
    CHECK(strstr(qf_last_error(), "recovery_jobs (h) is 0") && qf_set_recovery(task, 5, 2.0) == QF_OK);
}

static void own_functions(qf_session *task)
{
    CHECK(qf_set_target(task, 0.1, 0.1) == QF_OK && qf_set_skip_late(task, true) == QF_OK);
    CHECK(qf_set_own_predictor(task, observe, predict, NULL) == QF_OK);
    CHECK(qf_set_own_controller(task, decide, &decided) == QF_OK);
}

/* Four jobs, which the own predictor and controller see. */
static void runs_without_daemon(qf_session *task)
{
    qf_quality quality;
    qf_grant grant;
    pthread_t other;

    CHECK(qf_start(task) == QF_OK && qf_start(task) == QF_STATE && qf_set_name(task, "x") == QF_STATE);
    CHECK(qf_begin_at(task, 1) == QF_OK && qf_begin(task) == QF_OK && qf_end_cycle_hint(task, 2.0) == QF_OK && qf_end_cycle(task) == QF_OK);
    CHECK(qf_end_cycle_interval(task, 2, 1) == QF_OK && qf_end_cycle_budget(task, 7) == QF_OK);
    CHECK(observed == 4 && predicted == 4 && decided == 4);
    CHECK(pthread_create(&other, NULL, elsewhere, task) == 0 && pthread_join(other, NULL) == 0);
    CHECK(qf_get_quality(task, NULL) == QF_INVALID && qf_get_quality(task, &quality) == QF_OK);
    CHECK(quality.jobs == 4 && qf_get_grant(task, &grant) == QF_OK && grant.budget_ns == 0);
    CHECK(qf_reconnect(task) == QF_OK && qf_end(task) == QF_OK && qf_end(task) == QF_STATE);
}

static void runs_periodically(qf_session *task)
{
    uint64_t last = 0;

    CHECK(qf_start(task) == QF_OK && qf_start_periodic(task, NULL, NULL) == QF_INVALID);
    CHECK(qf_start_periodic(task, job, &last) == QF_OK && last >= 4);
}

/* Runs when the library's values of this thread are gone: a call that fails still returns. */
static void at_exit(void)
{
    qf_session *task = NULL;

    if (qf_end_cycle(NULL) != QF_INVALID || strlen(qf_last_error()) == 0)
        _exit(1);
    if (qf_init_alone(&task) != QF_OK || qf_start(task) == QF_INVALID || qf_free(task) != QF_OK)
        _exit(1);
}

int main(void)
{
    qf_session *task = NULL;

    CHECK(atexit(at_exit) == 0);
    without_session();
    wrong_options();
    without_message();
    without_ecalls();
    CHECK(qf_init_alone(&task) == QF_OK && task != NULL);
    wrong_order(task);
    wrong_values(task);
    wrong_combinations(task);
    own_functions(task);
    runs_without_daemon(task);
    runs_periodically(task);
    CHECK(qf_free(task) == QF_OK);
    reentrant();
    return 0;
}
