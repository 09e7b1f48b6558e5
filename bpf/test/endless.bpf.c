// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that no kernel accepts, for tests of the error message. */
#include "qf_bpf.h"

volatile __u64 counter;

SEC("syscall")
int endless(void *ctx)
{
	for (;;)
		counter++;
	return 0;
}

QF_LICENSE;
