// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Runs the queue's decisions without packets, one call at a time, to compare them with the theory on any kernel. */
#include "machine.h"

#define STEPS_MAX 512

u32 waiting_packets;
u32 lone_len;

/* Like the queueing discipline: a packet that arrives at an empty queue is decided at once. */
QF_INLINE void put_next(struct qf_net_trial *trial)
{
	if (lone.who)
		seat_lone(lone_len, trial->now, trial->now);
	trial->place = 0;
	lone_len = trial->len;
	if (waiting_packets || !(put_lone(trial->stream, trial->len, trial->now) ||
				 settle_lone(trial->stream, trial->len, trial->now, trial->now)))
		trial->place = put(trial->stream, trial->len, trial->now);
	waiting_packets += trial->place >= 0;
}

/* Sends the only packet if it is requested at the time of its arrival. */
QF_INLINE bool look_lone(struct qf_net_trial *trial)
{
	if (!lone.who)
		return false;
	if (trial->now != lone.tick) {
		seat_lone(lone_len, trial->now, trial->now);
		return false;
	}
	trial->verdict = SEND;
	trial->stream = lone.who - 1;
	trial->len = lone_len;
	send_lone(lone_len);
	return true;
}

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
		put_next(trial);
	else if (!look_lone(trial))
		look_next(trial, &next);
	waiting_packets -= trial->act == QF_NET_TRIAL_NEXT && (trial->verdict == SEND || trial->verdict == DROP);
	return 0;
}

QF_LICENSE;
