/* Memory is reserved, allocated, shared with a second connection, grown and freed; refusals name the limit. */
#include <qfabric.h>
#include <string.h>

#include "check.h"

int main(void)
{
    qf_mem *mem = NULL, *other = NULL;
    qf_allocation *frame = NULL, *small = NULL, *same = NULL;
    uint64_t reserve = 0, bytes = 0;
    qf_memory own = {1, 1, 1, 1};

    CHECK(qf_mem_connect(&mem) == QF_OK && qf_mem_connect(&other) == QF_OK);
    CHECK(qf_mem_reserve(mem, UINT64_C(1) << 40, &reserve) == QF_REFUSED && strstr(qf_last_error(), "1 TiB"));
    CHECK(qf_mem_reserve(mem, 500000, &reserve) == QF_OK);
    CHECK(qf_mem_alloc(mem, reserve, 76800, &frame) == QF_OK && qf_mem_alloc(mem, reserve, 20, &small) == QF_OK);
    memset(qf_allocation_data(frame), 7, 76800);
    strcpy(qf_allocation_data(small), "frame 1");

    CHECK(qf_mem_join(other, reserve, &bytes) == QF_OK && bytes == 503808);
    CHECK(qf_mem_open(other, reserve, qf_allocation_id(small), &same) == QF_OK);
    CHECK(strcmp(qf_allocation_data(same), "frame 1") == 0);
    qf_allocation_free(same);

    CHECK(qf_mem_alloc(mem, reserve, 500000, &same) == QF_REFUSED && strstr(qf_last_error(), "of 492 KiB left"));
    CHECK(qf_mem_resize(mem, reserve, 1000000) == QF_OK);
    CHECK(qf_mem_alloc(mem, reserve, 500000, &same) == QF_OK);
    qf_allocation_free(same);
    qf_allocation_free(frame);
    qf_allocation_free(small);
    CHECK(qf_own_memory(&own) == QF_OK && own.promised_bytes == 0 && own.offered_bytes == 0);
    CHECK(qf_mem_free_reserve(mem, reserve) == QF_OK);
    CHECK(qf_mem_reserve_huge(mem, 1, &reserve) == QF_OK && qf_mem_alloc(mem, reserve, 1000000, &frame) == QF_OK);
    CHECK(qf_allocation_pages(frame) <= QF_PAGES_HUGE && qf_allocation_pages(NULL) == QF_PAGES_BASE);
    memset(qf_allocation_data(frame), 7, 1000000);
    qf_allocation_free(frame);
    CHECK(qf_mem_free_reserve(mem, reserve) == QF_OK);
    CHECK(qf_mem_reserve(NULL, 1, &reserve) == QF_INVALID && qf_allocation_data(NULL) == NULL);
    qf_mem_free(mem);
    qf_mem_free(other);
    return 0;
}
