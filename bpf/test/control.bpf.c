// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* AQuoSA's controller alone, job by job. */
#include "aquosa.h"

struct qf_control controller SEC(".bss.controller");

SEC("syscall")
int job(struct qf_test_control *c)
{
	struct qf_control_config config = c->config;
	int error = qf_control_check(&config);

	if (error)
		return error;
	if (c->reset) {
		__builtin_memset(&controller, 0, sizeof(controller));
		controller.config = config;
	}
	c->budget_ns = qf_control_job(&controller, c->cost_ns, c->late_periods, c->period_ns);
	c->low_ns = controller.low_ns;
	c->high_ns = controller.high_ns;
	return 0;
}

QF_LICENSE;
