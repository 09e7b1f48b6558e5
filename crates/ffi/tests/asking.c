/* A joint contract ends with its handle or its process, needs the consent of an application, and asks before an
 * upgrade. 0.5 CPU are free. */
#include <pthread.h>
#include <qfabric.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define WAIT (30000 * MS)

static qf_joint_request *wants(double wanted, double minimum)
{
    qf_joint_request *request = qf_joint_request_new();

    CHECK(qf_joint_want(request, NULL, "cpu", wanted, minimum) == QF_OK);
    return request;
}

static qf_joint *applied(qf_joint_request *request)
{
    qf_joint *contract = NULL;

    CHECK(qf_joint_apply(request, &contract) == QF_OK);
    qf_joint_request_free(request);
    return contract;
}

static size_t in_force(void)
{
    size_t count = 9;

    CHECK(qf_joint_list(NULL, 0, &count) == QF_OK);
    return count;
}

/* The contract of a handle outlives the copy in a forked child, and ends with the handle. */
static void ends_with_its_handle(void)
{
    qf_joint_request *request = wants(0.3, 0.3);
    qf_joint *contract;
    int status = 1;
    pid_t child;

    CHECK(qf_joint_lease(NULL, 0) == QF_INVALID && qf_joint_lease(request, 0) == QF_OK);
    contract = applied(request);
    child = fork();
    if (child == 0) {
        qf_joint_free(contract);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && in_force() == 1);
    qf_joint_free(contract);
    CHECK(in_force() == 0);
}

static void ends_with_its_process(void)
{
    qf_joint_request *request = wants(0.3, 0.3);
    pid_t child = fork();

    if (child == 0) {
        pause();
        _exit(0);
    }
    CHECK(child > 0 && qf_joint_lease(request, child) == QF_OK);
    qf_joint_free(applied(request));
    CHECK(in_force() == 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    while (in_force() != 0)
        usleep(1000);
}

/* Applies a contract that needs the consent of the application player. */
static void *asks(void *status)
{
    qf_joint_request *request = wants(0.2, 0.1);
    qf_joint *contract = NULL;

    CHECK(qf_joint_application(request, NULL, "player") == QF_OK);
    *(qf_status *)status = qf_joint_apply(request, &contract);
    if (contract)
        CHECK(qf_joint_end(contract) == QF_OK);
    qf_joint_free(contract);
    qf_joint_request_free(request);
    return NULL;
}

/* A program answers a question; returns what the contract got. */
static qf_status answered(const qf_consent *answers, bool accept)
{
    qf_consent_question question;
    qf_joint_resource cpu;
    qf_status status = QF_BROKEN;
    pthread_t asking;

    CHECK(pthread_create(&asking, NULL, asks, &status) == 0);
    CHECK(qf_consent_next(answers, WAIT, &question, &cpu, 1) == QF_OK);
    CHECK(question.contract[0] && question.left_ns > 0 && question.count == 1);
    CHECK(strcmp(cpu.resource, "cpu") == 0 && cpu.granted == 0.2);
    CHECK(qf_consent_answer(answers, question.number, accept) == QF_OK);
    CHECK(qf_consent_answer(answers, question.number, accept) == QF_REFUSED);
    CHECK(pthread_join(asking, NULL) == 0);
    return status;
}

static void needs_consent(void)
{
    qf_consent *answers = NULL;
    qf_consent_question question;
    qf_status status;

    asks(&status);
    CHECK(status == QF_REFUSED && strstr(qf_last_error(), "no program answers"));
    CHECK(qf_consent_begin(NULL, &answers) == QF_INVALID && qf_consent_begin("player", &answers) == QF_OK);
    CHECK(qf_consent_next(answers, 0, NULL, NULL, 0) == QF_INVALID);
    CHECK(qf_consent_next(answers, 0, &question, NULL, 0) == QF_OK && !question.contract[0]);
    CHECK(answered(answers, true) == QF_OK && answered(answers, false) == QF_REFUSED);
    qf_consent_free(answers);
    CHECK(qf_consent_always("player", true, 0) == QF_OK);
    asks(&status);
    CHECK(status == QF_OK && qf_consent_always("player", false, getpid()) == QF_OK);
    asks(&status);
    CHECK(status == QF_REFUSED && strstr(qf_last_error(), "did not consent"));
    CHECK(qf_consent_forget("player") == QF_OK && qf_consent_forget("player") == QF_REFUSED);
}

static void asks_before_an_upgrade(void)
{
    qf_joint *other = applied(wants(0.4, 0.4)), *contract;
    qf_joint_request *request = wants(0.3, 0.1);
    qf_joint_resource cpu;
    qf_joint_offer offer;

    CHECK(qf_joint_upgrades(request, "later") == QF_INVALID && strstr(qf_last_error(), "accept, ask or never"));
    CHECK(qf_joint_upgrades(request, "ask") == QF_OK);
    contract = applied(request);
    CHECK(qf_joint_next_offer(contract, 0, &offer, NULL, 0) == QF_OK && !offer.host[0]);
    CHECK(qf_joint_end(other) == QF_OK);
    CHECK(qf_joint_next_offer(contract, WAIT, &offer, &cpu, 1) == QF_OK);
    CHECK(offer.host[0] && offer.count == 1 && offer.left_ns > 0 && cpu.granted == 0.3);
    CHECK(qf_joint_answer_offer(contract, offer.host, true) == QF_OK);
    CHECK(qf_joint_answer_offer(contract, offer.host, true) == QF_REFUSED);
    do
        CHECK(qf_joint_refresh(contract) == QF_OK && qf_joint_at(contract, 0, &cpu) == QF_OK);
    while (cpu.granted != 0.3);
    CHECK(qf_joint_end(contract) == QF_OK);
    qf_joint_free(contract);
    qf_joint_free(other);
}

int main(void)
{
    ends_with_its_handle();
    ends_with_its_process();
    needs_consent();
    asks_before_an_upgrade();
    return 0;
}
