/* A program draws CPU time, memory and a rate from a joint contract that has all of them: 0.5 CPU, 256 MiB, and what the
 * link qf0 gives. Without the contract nothing is free. */
#include <netinet/in.h>
#include <qfabric.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "check.h"

#define PERIOD (40 * MS)
#define FLOW "flow udp,10.9.9.1:5000,10.9.9.2:6000"

int main(void)
{
    qf_joint_request *request = qf_joint_request_new();
    qf_joint *contract = NULL;
    qf_joint_resource rate;
    qf_cpu *cpu = qf_cpu_new();
    qf_mem *mem = NULL;
    qf_allocation *frame = NULL;
    char id[QF_CLAIM_SIZE];
    uint64_t reserve = 0;
    uint32_t stream = 0, size;
    int sender, field = 0;
    socklen_t length = sizeof(field);
    pid_t other = fork();

    if (other == 0) { /* a program that this one reserves for */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    CHECK(other > 0);

    CHECK(qf_joint_want(request, NULL, "cpu", 0.5, 0.5) == QF_OK);
    CHECK(qf_joint_want(request, NULL, "memory", 256 << 20, 256 << 20) == QF_OK);
    CHECK(qf_joint_want(request, NULL, "network qf0 out", 8e6, 1e6) == QF_OK);
    CHECK(qf_joint_apply(request, &contract) == QF_OK && qf_joint_id(contract, &id) == QF_OK);
    CHECK(qf_joint_at(contract, 2, &rate) == QF_OK && strcmp(rate.resource, "network qf0 out") == 0);
    size = (uint32_t)(rate.granted * 0.04 / 8);

    /* The processor: for this thread, and for a whole program. */
    CHECK(qf_cpu_reserve(cpu, getpid(), 0.3, PERIOD) == QF_REFUSED && strstr(qf_last_error(), "contract of"));
    CHECK(qf_cpu_reserve_from(cpu, "nonsense", getpid(), 0.3, PERIOD) == QF_INVALID);
    CHECK(qf_cpu_reserve_from(cpu, "nobody:7", getpid(), 0.3, PERIOD) == QF_REFUSED);
    CHECK(qf_cpu_reserve_from(cpu, id, getpid(), 0.6, PERIOD) == QF_REFUSED);
    CHECK(qf_cpu_reserve_from(cpu, id, getpid(), 0.3, PERIOD) == QF_OK && qf_cpu_start(cpu) == QF_OK);
    for (int i = 0; i < 5; i++)
        CHECK(qf_cpu_yield(cpu) == QF_OK);
    CHECK(qf_cpu_free_reserve(cpu) == QF_OK);
    CHECK(qf_cpu_reserve_from(cpu, id, other, 0.5, PERIOD) == QF_OK);

    /* Memory. */
    CHECK(qf_mem_connect(&mem) == QF_OK && qf_mem_reserve(mem, 4096, &reserve) == QF_REFUSED);
    CHECK(qf_mem_reserve_from(mem, "nobody:7", 4096, &reserve) == QF_REFUSED && strstr(qf_last_error(), "nobody:"));
    CHECK(qf_mem_reserve_from(mem, id, 257 << 20, &reserve) == QF_REFUSED);
    CHECK(qf_mem_reserve_huge_from(mem, "nobody:7", 4096, &reserve) == QF_REFUSED);
    CHECK(qf_mem_reserve_huge_from(mem, id, 64 << 20, &reserve) == QF_OK && qf_mem_free_reserve(mem, reserve) == QF_OK);
    CHECK(qf_mem_reserve_from(mem, id, 255 << 20, &reserve) == QF_OK);
    CHECK(qf_mem_alloc(mem, reserve, 76800, &frame) == QF_OK);
    memset(qf_allocation_data(frame), 1, 76800);

    /* The rate. */
    CHECK(qf_stream_begin(NULL, "qf0", FLOW, PERIOD, size, &stream) == QF_REFUSED);
    CHECK(qf_stream_begin("nobody:7", "qf0", FLOW, PERIOD, size, &stream) == QF_REFUSED);
    CHECK(qf_stream_begin(id, "qf0", "flow 7", PERIOD, size, &stream) == QF_INVALID);
    CHECK(qf_stream_begin(id, "qf0", FLOW, PERIOD, 2 * size, &stream) == QF_REFUSED);
    CHECK(qf_stream_begin(id, "qf0", FLOW, PERIOD, size, &stream) == QF_OK && qf_stream_end("qf0", stream) == QF_OK);
    CHECK(qf_stream_begin(id, "qf0", FLOW, PERIOD, size, &stream) == QF_OK);

    /* Its code point, and that of an own socket. */
    CHECK(qf_stream_set_dscp("qf0", stream, 64) == QF_INVALID && strstr(qf_last_error(), "is 64; use 0 to 63"));
    CHECK(qf_stream_set_dscp("qf0", 63, 46) == QF_REFUSED && qf_stream_set_dscp(NULL, stream, 46) == QF_INVALID);
    CHECK(qf_stream_set_dscp("qf0", stream, 46) == QF_OK);
    sender = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(sender >= 0 && qf_set_dscp(sender, 300) == QF_INVALID && strstr(qf_last_error(), "is 300; use 0 to 63"));
    CHECK(qf_set_dscp(sender, 46) == QF_OK && getsockopt(sender, IPPROTO_IP, IP_TOS, &field, &length) == 0);
    CHECK(field == 46 << 2 && qf_set_dscp(-1, 46) == QF_INVALID);

    /* The stream ends with the contract; the reserve stays. */
    CHECK(qf_joint_end(contract) == QF_OK && qf_stream_end("qf0", stream) == QF_REFUSED);
    CHECK(((unsigned char *)qf_allocation_data(frame))[76799] == 1);
    kill(other, SIGKILL);
    qf_allocation_free(frame);
    qf_mem_free(mem);
    qf_cpu_free(cpu);
    qf_joint_free(contract);
    qf_joint_request_free(request);
    return 0;
}
