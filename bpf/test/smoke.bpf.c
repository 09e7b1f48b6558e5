// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The smallest program: tests that objects are compiled, loaded, configured and run. */
#include "qf_abi.h"

const volatile __u64 offset SEC(".rodata.offset") = 1;
struct qf_server servers[4] SEC(".bss.servers");

struct add {
	__u64 left;
	__u64 sum;
};

SEC("syscall")
int add(struct add *ctx)
{
	ctx->sum = ctx->left + offset;
	servers[1].used_ns = ctx->sum;
	return 0;
}

QF_LICENSE;
