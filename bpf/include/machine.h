/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One CPU under DWCS: a decision at a point in time, then an account of the time that was given.
 *
 *              release                        served: rule a, d += T
 *   waiting ────────────────▶ released ─────────────────────────────▶ waiting
 *      ▲                       │    ▲ d passes: rule b, d += T           │
 *      └─ extra service, where ┘    └────┘                               │ block
 *         work-conserving                           blocked ◀────────────┘ wake: qf_wake()
 *
 * Time is a parameter; the machine trusts the caller's value. It uses no helper, no kfunc and no map look-up, so that
 * all of it can run under the caller's bpf_spin_lock (one per CPU). Time that ran is charged first, before any other
 * call at the same point in time.
 *
 * reclaim.h defines what a server does at the end of its budget.
 *
 * Bounds. Each loop ends by its own progress: a turnover or release moves its server beyond `now` (at most 1,023 of
 * each), a list has at most QF_EVENTS events, rule 4 visits each server once, idle time each server twice. may_goto
 * only saves the verifier from counting. If it fires, the rest is done at the next decision, and rule 4 refuses the
 * boost.
 *
 * Source: 000 §2.4.1, §3.3.1; twin: crates/sched/src/dwcs/machine.rs (0010); this file: docs/design/0012.
 */
#ifndef QF_MACHINE_H
#define QF_MACHINE_H

#include "reclaim.h"
#include "slots.h"

/* Updates a server's position in all trees. Every function that changes a server ends with this call. */
QF_SUBPROGRAM int qf_place(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	bool ready = qf_is(s, QF_IS_READY);
	bool released = ready && s->release_ns <= m->now_ns;
	bool waits = ready && !released;
	bool lags = qf_lags(m, s);
	bool again = waits && qf_asks(s, QF_ASK_WORK_CONSERVING) && s->release_ns > s->config.arrival_ns;

	if (released)
		s->state &= ~(QF_IS_EXHAUSTED | QF_IS_DONE);
	s->rank = qf_rank(s, m->network);
	s->due_ns = waits ? s->release_ns : s->lag_ns;
	qf_count_active(m, s, ready || lags);
	qf_count_wanting(m, s, waits);
	qf_set_by_table(&m->released, m->height, slot, released);
	qf_set_by_due(&m->waiting, m->height, slot, waits || lags);
	qf_set_by_table(&m->surplus, m->height, slot, again && !qf_is(s, QF_IS_WANTING));
	qf_place_event(m, slot);
	return 0;
}

#include "control.h"
#include "account.h"
#include "event.h"
#include "ready.h"
#include "pick.h"
#include "server.h"

#endif
