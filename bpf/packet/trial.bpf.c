// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The queue's decisions without packets, run on demand: how they are held against the theory, on any kernel. */
#include "machine.h"

#define STEPS_MAX 512

QF_INLINE void look_next(struct qf_net_trial *trial, struct next *next)
{
	u32 verdict = AGAIN;
	int i;

	bpf_for(i, 0, STEPS_MAX) {
		verdict = step(next, trial->now);
		if (verdict != AGAIN)
			break;
	}
	trial->verdict = verdict;
	trial->stream = next->stream;
	trial->len = next->len;
	trial->until = next->until;
}

SEC("syscall")
int qf_trial(struct qf_net_trial *trial)
{
	struct next next = {};

	if (trial->act == QF_NET_TRIAL_PUT)
		trial->place = put(trial->stream, trial->len, trial->now);
	else
		look_next(trial, &next);
	return 0;
}

QF_LICENSE;
