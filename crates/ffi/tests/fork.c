/* After a fork the contract, the ring and the connection belong to the parent, even if the child uses its copies
 * of the handles. */
#define _GNU_SOURCE
#include <qfabric.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define POLICY_DEADLINE 6
/* Far more periods than the test needs; a count, not a time. */
#define MOST_WAITS 3000

/* Waits until the daemon has processed `count` jobs; returns the number processed. */
static uint64_t taken(qf_session *task, uint64_t count)
{
    qf_grant grant;

    for (int i = 0; i < MOST_WAITS; i++) {
        CHECK(qf_get_grant(task, &grant) == QF_OK);
        if (grant.jobs >= count)
            break;
        CHECK(qf_wait_for_next_job(task) == QF_OK && qf_skip_job(task) == QF_OK);
    }
    return grant.jobs;
}

static void jobs(qf_session *task, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(qf_wait_for_next_job(task) == QF_OK);
        CHECK(qf_end_cycle(task) == QF_OK);
    }
}

static qf_session *started(const char *name)
{
    qf_session *task = NULL;

    CHECK(qf_init(&task) == QF_OK && qf_set_name(task, name) == QF_OK);
    CHECK(qf_set_task_period(task, 20 * MS) == QF_OK && qf_set_max_bandwidth(task, 0.2) == QF_OK);
    CHECK(qf_start(task) == QF_OK);
    return task;
}

/* Uses the handles of the parent, ends them, and then starts a contract for the child. */
static int child(qf_session *parents, qf_service *service, qf_subscription *subscription)
{
    uint64_t event = 9;
    size_t length = 0;
    qf_grant grant;

    jobs(parents, 20);
    CHECK(qf_get_grant(parents, &grant) == QF_OK && grant.budget_ns == 0 && grant.jobs == 0);
    CHECK(qf_reconnect(parents) == QF_STATE && strstr(qf_last_error(), "forked"));
    CHECK(qf_end(parents) == QF_OK && qf_free(parents) == QF_OK);
    CHECK(qf_raise_event(service, -1, &event, sizeof event, 0, false) == QF_STATE);
    CHECK(qf_ecalls_next(subscription, &event, sizeof event, MS, &length, NULL) == QF_STATE);
    CHECK(qf_ecalls_next(subscription, &event, sizeof event, 0, &length, NULL) == QF_OK && length == 0);
    CHECK(qf_ecalls_unsubscribe(subscription) == QF_STATE && qf_unregister_service(service) == QF_STATE);
    parents = started("child");
    jobs(parents, 3);
    CHECK(taken(parents, 3) == 3 && qf_free(parents) == QF_OK);
    return 0;
}

/* A service and a subscription to its numbers. */
struct numbers {
    qf_ecalls *connection;
    qf_service *service;
    qf_subscription *subscription;
};

static struct numbers subscribed(void)
{
    static const char *const format = "struct number { unsigned long value; };";
    struct ecalls how = { 0 };
    struct sh_memory memory = { .slots = 8 };
    struct numbers all = { 0 };

    CHECK(qf_ecalls_connect(&all.connection) == QF_OK);
    CHECK(qf_register_service(all.connection, "c.fork", "numbers", format, &all.service) == QF_OK);
    CHECK(qf_ecalls_subscribe(all.connection, "c.fork", &how, &memory, &all.subscription) == QF_OK);
    return all;
}

static void raises(struct numbers *all, uint64_t event)
{
    CHECK(qf_raise_event(all->service, -1, &event, sizeof event, 0, false) == QF_OK);
}

static void receives(struct numbers *all, uint64_t expected)
{
    uint64_t event = 0;
    size_t length = 0;

    CHECK(qf_ecalls_next(all->subscription, &event, sizeof event, 60000 * MS, &length, NULL) == QF_OK);
    CHECK(length == sizeof event && event == expected);
}

static void disconnects(struct numbers *all)
{
    CHECK(qf_ecalls_unsubscribe(all->subscription) == QF_OK && qf_unregister_service(all->service) == QF_OK);
    qf_ecalls_free(all->connection);
}

/* Runs `child` in a forked process until its end. */
static void forks(qf_session *task, struct numbers *all)
{
    int status = 0;
    pid_t forked = fork();

    CHECK(forked >= 0);
    if (forked == 0)
        _exit(child(task, all->service, all->subscription));
    CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    struct numbers numbers = subscribed();
    qf_session *task = started("parent");

    jobs(task, 5);
    CHECK(taken(task, 5) == 5);
    raises(&numbers, 7);
    for (int i = 0; i < MOST_WAITS && qf_ecalls_flag(numbers.subscription) == 0; i++)
        usleep(1000);

    forks(task, &numbers);

    CHECK((sched_getscheduler(0) & 0xff) == POLICY_DEADLINE);
    jobs(task, 5);
    CHECK(taken(task, 10) == 10);
    receives(&numbers, 7);
    raises(&numbers, 8);
    receives(&numbers, 8);
    CHECK(qf_end(task) == QF_OK && (sched_getscheduler(0) & 0xff) != POLICY_DEADLINE);
    CHECK(qf_free(task) == QF_OK);
    disconnects(&numbers);
    return 0;
}
