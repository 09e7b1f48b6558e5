/* Joint contracts are made, of amounts and of a stream, read, found by their identity, partly satisfied, refused and
   ended. 0.5 CPU are free. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

/* The stream has 0.25 CPU at 25 frames per second; 0.1 CPU are enough. */
static void from_a_stream(void)
{
    static const char film[] = "[video]\nframe_rate = { min = 10, max = 25 }\nframe_size = \"8kB\"\n"
                               "[local]\nmemory = \"16MiB\"\ncomputation = \"10ms\"\n";
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract = NULL;
    qf_joint_resource cpu, memory;
    size_t length = 0, again = 0;
    char *json;

    CHECK(qf_joint_stream(request, "[video]\nframe_raet = 25\n") == QF_INVALID);
    CHECK(strstr(qf_last_error(), "line 2, column 1") && strstr(qf_last_error(), "frame_raet"));
    CHECK(qf_joint_stream(request, NULL) == QF_INVALID && qf_joint_stream(NULL, film) == QF_INVALID);

    CHECK(qf_joint_explain(film, NULL, 0, &length) == QF_OK && length > 0);
    CHECK(qf_joint_explain(film, NULL, length + 1, &again) == QF_INVALID);
    json = malloc(length + 1);
    CHECK(json && qf_joint_explain(film, json, length + 1, &again) == QF_OK && again == length);
    CHECK(strlen(json) == length && strstr(json, "T = 1 / R_A"));
    free(json);

    CHECK(qf_joint_stream(request, film) == QF_OK && qf_joint_apply(request, &contract) == QF_OK);
    CHECK(qf_joint_at(contract, 0, &cpu) == QF_OK && strcmp(cpu.resource, "cpu") == 0);
    CHECK(cpu.asked == 0.25 && cpu.granted == 0.25);
    CHECK(qf_joint_at(contract, 1, &memory) == QF_OK && memory.asked > 16 << 20);
    CHECK(qf_joint_end(contract) == QF_OK);
    qf_joint_free(contract);
    qf_joint_request_free(request);
}

/* A contract has all 0.5 CPU: the refusal of another one names its initiator. */
static void held_by_a_contract(void)
{
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract = NULL;
    qf_joint_holder holder;
    size_t count = 0;

    CHECK(qf_joint_want(request, NULL, "cpu", 0.1, 0.1) == QF_OK);
    CHECK(qf_joint_apply(request, &contract) == QF_REFUSED);
    CHECK(qf_last_joint_holders(&holder, 1, &count) == QF_OK && count == 1);
    CHECK(holder.host[0] != 0 && holder.amount == 0.5);
    CHECK(qf_last_joint_holders(&holder, 1, NULL) == QF_INVALID);
    CHECK(qf_last_joint_holders(&holder, 1, &count) == QF_STATE);
    qf_joint_request_free(request);
}

int main(void)
{
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract = NULL, *same = NULL;
    qf_joint_resource resource;
    qf_joint_refusal refusal;
    char ids[2][QF_CLAIM_SIZE];
    size_t count = 0;

    CHECK(qf_last_joint_refusal(&refusal) == QF_STATE);
    CHECK(qf_joint_apply(request, &contract) == QF_INVALID && strstr(qf_last_error(), "0 hosts"));
    CHECK(qf_joint_want(request, NULL, "disk", 1, 1) == QF_INVALID && strstr(qf_last_error(), "\"disk\""));
    CHECK(qf_joint_want(request, NULL, "cpu", -1, 0) == QF_INVALID && strstr(qf_last_error(), "-1 CPU of cpu"));

    /* More than there is: nothing is held. */
    CHECK(qf_joint_want(request, NULL, "cpu", 0.9, 0.9) == QF_OK);
    CHECK(qf_joint_want(request, NULL, "memory", 1048576, 1048576) == QF_OK);
    CHECK(qf_joint_apply(request, &contract) == QF_REFUSED);
    CHECK(qf_last_joint_refusal(&refusal) == QF_OK && strcmp(refusal.resource, "cpu") == 0);
    CHECK(refusal.asked == 0.9 && refusal.free == 0.5 && refusal.largest == 0.5);
    CHECK(qf_last_joint_holders(NULL, 0, &count) == QF_OK && count == 0);
    CHECK(qf_joint_list(NULL, 0, &count) == QF_OK && count == 0);

    /* 0.2 are enough. */
    CHECK(qf_joint_want(request, NULL, "cpu", 0.9, 0.2) == QF_OK && qf_joint_patience(request, 1000000) == QF_OK);
    CHECK(qf_joint_apply(request, NULL) == QF_INVALID && qf_joint_list(NULL, 0, &count) == QF_OK && count == 0);
    CHECK(qf_joint_apply(request, &contract) == QF_OK && qf_joint_id(contract, &ids[0]) == QF_OK);
    CHECK(qf_joint_count(contract, &count) == QF_OK && count == 2);
    CHECK(qf_joint_at(contract, 0, &resource) == QF_OK && strcmp(resource.resource, "cpu") == 0);
    CHECK(resource.asked == 0.9 && resource.granted == 0.5);
    held_by_a_contract();
    CHECK(qf_joint_at(contract, 2, &resource) == QF_INVALID && strstr(qf_last_error(), "2 resources"));
    CHECK(qf_joint_list(&ids[1], 1, &count) == QF_OK && count == 1 && strcmp(ids[0], ids[1]) == 0);

    CHECK(qf_joint_open("nonsense", &same) == QF_INVALID && qf_joint_open(ids[0], &same) == QF_OK);
    CHECK(qf_joint_refresh(same) == QF_OK && qf_joint_end(same) == QF_OK);
    CHECK(qf_joint_refresh(contract) == QF_REFUSED && strstr(qf_last_error(), ids[0]));
    CHECK(qf_joint_end(NULL) == QF_INVALID);
    qf_joint_free(same);
    qf_joint_free(contract);
    qf_joint_request_free(request);
    from_a_stream();
    return 0;
}
