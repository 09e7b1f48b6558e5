/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A CPU: its machine under a lock, the decision in force, the timer that ends it.
 *
 * Time is charged according to the decision in force before each operation on the machine. `since_ns` is 0 while no
 * thread of this scheduler runs; only the CPU itself sets another value, so that setting it needs no lock.
 */
#ifndef QF_SCHED_CPU_H
#define QF_SCHED_CPU_H

#include "fair.h"
#include "machine.h"

#define BPF_F_TIMER_ABS 1ULL
#define BPF_F_TIMER_CPU_PIN 2ULL
/* A timer that is this late counts as lost. */
#define QF_TIMER_LATE_NS 1000000ULL
/* Events of one server that may wait. Otherwise a server that does not run could take all QF_EVENTS places of its CPU,
 * and no other server on it would be favoured. */
#define QF_EVENTS_EACH 32

struct qf_cpu {
	struct bpf_spin_lock lock;
	u32 cpu;
	struct bpf_timer timer;
	u64 since_ns;
	u64 armed_ns;
	struct qf_decision decision;
	/* The state behind the decision has changed and the CPU was kicked. It must be kicked again when the next
	 * thread runs: the kernel discards a kick that arrives while it chooses the next thread. */
	u32 stale;
	/* The timer has ended the CPU's idle time (qf_begins()). */
	u32 resumed;
	struct qf_machine machine;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QF_CPUS);
	__type(key, u32);
	__type(value, struct qf_cpu);
} cpus SEC(".maps");

/* Events raised by others: E-code handlers write them here, and the server's CPU takes them at its next decision. */
struct qf_raised raised SEC(".bss.raised");

QF_INLINE struct qf_cpu *qf_cpu(s32 cpu)
{
	u32 key = (u32)cpu;

	return bpf_map_lookup_elem(&cpus, &key);
}

/* The slot of best effort's reservation on a CPU. The slots of user servers are after all of these. */
QF_INLINE u32 qf_best_effort_slot(s32 cpu)
{
	return 1 + (u32)cpu;
}

/* Charges the time that ran. The caller holds the lock. */
QF_INLINE void qf_settle(struct qf_cpu *c, u64 now)
{
	u64 since = c->since_ns;

	if (!since || now <= since)
		return;
	qf_account(&c->machine, &c->decision, now - since, now);
	c->since_ns = now;
}

QF_INLINE bool qf_same(const struct qf_decision *a, const struct qf_decision *b)
{
	return a->slot == b->slot && a->kind == b->kind && a->task_server == b->task_server;
}

/*
 * Whether service that an event bought is still in force. An event buys its sink one service time (rules 2 to 5), and
 * leaves the queue. For that time the sink runs before all that have no claim of their own, and (rule 4) before servers
 * with the same deadline.
 */
QF_INLINE bool qf_is_bought(const struct qf_cpu *c, const struct qf_decision *next, u64 now)
{
	const struct qf_decision *d = &c->decision;

	if (d->rule < 2 || now >= d->until_ns || !qf_is(qf_server(d->slot), QF_IS_READY))
		return false;
	if (d->kind == QF_KIND_EXTRA)
		return next->kind != QF_KIND_REGULAR && !(next->kind == QF_KIND_BEST_EFFORT && next->slot);
	return next->kind == QF_KIND_REGULAR && qf_server(next->slot)->deadline_ns >= qf_server(d->slot)->deadline_ns;
}

/* Whether the decision in force is still right, although the machine would now decide `next`. */
QF_INLINE bool qf_holds(const struct qf_cpu *c, const struct qf_decision *next, u64 now)
{
	if (qf_is_bought(c, next, now))
		return true;
	return qf_same(&c->decision, next) && next->until_ns >= c->decision.until_ns;
}

/* Whether a thread without a server waits for this CPU. `comes`: one is on its way into a queue. */
QF_INLINE u32 qf_wants_best_effort(s32 cpu, u32 comes)
{
	struct qf_turn *turn = qf_turn(cpu);

	turn->waits = comes || qf_fair_waits(cpu);
	return turn->waits || turn->best_effort;
}

QF_INLINE void qf_kick(s32 cpu)
{
	counts[qf_cpu_index(cpu)].kicks++;
	qf_interrupt(cpu, SCX_KICK_PREEMPT);
}

/* Interrupts a CPU if it would now decide differently, after something changed. `comes`: a thread without a server is
 * on its way into a queue; `wakes`: a thread has woken, perhaps for an event that the machine does not know yet. */
QF_GLOBAL int qf_reconsider(s32 cpu, u32 comes, u32 wakes)
{
	u64 now = bpf_ktime_get_ns();
	u32 waits = qf_wants_best_effort(cpu, comes);
	struct qf_cpu *c = qf_cpu(cpu);
	struct qf_decision next = {};
	bool same;

	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	qf_peek(&c->machine, now, waits, &next);
	same = qf_holds(c, &next, now) && !(wakes && raised.dirty[qf_cpu_index(cpu)]);
	if (!same)
		c->stale = 1;
	bpf_spin_unlock(&c->lock);
	if (!same)
		qf_kick(cpu);
	return 0;
}

/* Starts the timer. Must run on the CPU itself. */
QF_INLINE void qf_arm(struct qf_cpu *c, u64 until)
{
	if (until == QF_NEVER || until == c->armed_ns)
		return;
	c->armed_ns = until;
	if (bpf_timer_start(&c->timer, until, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN))
		counts[qf_cpu_index((s32)c->cpu)].late++;
}

static int qf_timer(void *map, u32 *key, struct qf_cpu *c)
{
	s32 cpu = (s32)*key;
	u64 now = bpf_ktime_get_ns();
	u32 waits = qf_wants_best_effort(cpu, 0);
	struct qf_decision next = {};
	bool same, bought;

	counts[qf_cpu_index(cpu)].timers++;
	c->armed_ns = 0;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	qf_peek(&c->machine, now, waits, &next);
	bought = qf_is_bought(c, &next, now);
	same = c->since_ns && (bought || qf_same(&c->decision, &next));
	if (same && !bought)
		c->decision.until_ns = next.until_ns;
	bpf_spin_unlock(&c->lock);
	if (same) {
		qf_arm(c, c->decision.until_ns);
		return 0;
	}
	c->resumed = !c->since_ns;
	qf_kick(cpu);
	return 0;
}

/* Raises an event, unless too many events of this server wait. `own[0]` counts the events that were raised. */
QF_INLINE int qf_raise_one(struct qf_machine *m, u32 slot, u64 deadline)
{
	struct qf_server *s = qf_server(slot);
	u64 over = s->events[0] + s->events[1] + s->events[2] + s->events[3] + s->events[4] + s->events_late;
	int error;

	if (s->own[0] - over >= QF_EVENTS_EACH && s->event_deadline_ns >= m->now_ns) {
		s->events_refused++;
		m->counts.events_refused++;
		return -ENOSPC;
	}
	/* A server that does not run keeps its late events (qf_drop_late()). The first one makes room. */
	if (s->own[0] - over >= QF_EVENTS_EACH) {
		s->events_late++;
		m->counts.events_late++;
		qf_event_pop(m, slot);
	}
	error = qf_raise(m, slot, deadline);
	s->own[0] += !error;
	return error;
}

/* Raises the event that a handler has written at a place of a server, if there is one. */
QF_GLOBAL int qf_take(s32 cpu, u32 slot, u32 place)
{
	struct qf_cpu *c = qf_cpu(cpu);
	u64 deadline, replaced;

	slot = QF_SLOT(slot);
	deadline = __sync_lock_test_and_set(&raised.sinks[slot].deadline_ns[place & (QF_RAISED_EACH - 1)], 0);
	if (!c || !deadline)
		return 0;
	replaced = __sync_lock_test_and_set(&raised.sinks[slot].replaced, 0);
	bpf_spin_lock(&c->lock);
	if (qf_has(&c->machine, slot)) {
		qf_server(slot)->events_refused += replaced;
		c->machine.counts.events_refused += replaced;
		qf_raise_one(&c->machine, slot, deadline);
	}
	bpf_spin_unlock(&c->lock);
	return 0;
}

/* Raises the events that handlers have written for this CPU's servers; the machine orders them by deadline. */
QF_GLOBAL int qf_drain(s32 cpu)
{
	u32 index = qf_cpu_index(cpu);
	s32 word, bit, place;

	__sync_lock_test_and_set(&raised.dirty[index], 0);
	bpf_for(word, 0, QF_SLOTS / 64) {
		u64 bits = __sync_lock_test_and_set(&raised.bits[index][word & 15], 0);

		bpf_for(bit, 0, bits ? 64 : 0) {
			if (!(bits >> bit & 1))
				continue;
			bpf_for(place, 0, QF_RAISED_EACH)
				qf_take(cpu, word * 64 + bit, place);
		}
	}
	return 0;
}

/* Whether a handler has raised an event that this CPU has not taken, and the CPU may be interrupted for it. Called when
 * a thread begins to run: the kernel has discarded the handler's kick if it came after qf_drain(). */
QF_INLINE bool qf_rings(s32 cpu)
{
	u32 index = qf_cpu_index(cpu);

	return raised.dirty[index] && (s64)__sync_fetch_and_add(&raised.kicks[index], -1) > 0;
}

/* Whether service that an event bought continues. Called before a decision. */
QF_INLINE bool qf_goes_on(struct qf_cpu *c, u64 now, u32 waits)
{
	struct qf_decision next = {};

	if (c->decision.rule < 2)
		return false;
	qf_peek(&c->machine, now, waits, &next);
	return qf_is_bought(c, &next, now);
}

/* Decides. No time is charged until a thread runs. */
QF_GLOBAL int qf_decide_now(s32 cpu, u64 now, u32 waits)
{
	struct qf_cpu *c = qf_cpu(cpu);
	struct qf_decision next = {};

	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	c->since_ns = 0;
	c->stale = 0;
	if (!qf_goes_on(c, now, waits)) {
		qf_pick(&c->machine, now, waits, &next);
		c->decision = next;
	}
	bpf_spin_unlock(&c->lock);
	qf_turn(cpu)->waits = waits;
	counts[qf_cpu_index(cpu)].decisions++;
	return 0;
}

/* From now on no thread of this scheduler runs on the CPU. */
QF_GLOBAL int qf_pause(s32 cpu, u64 now)
{
	struct qf_cpu *c = qf_cpu(cpu);

	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	c->since_ns = 0;
	bpf_spin_unlock(&c->lock);
	return 0;
}

QF_INLINE int qf_cpu_init(s32 cpu)
{
	struct qf_config be = {
		.period_ns = options.period_ns,
		.service_ns = options.service_ns,
		.x = options.x,
		.y = options.y,
		.ask = QF_ASK_BEST_EFFORT,
	};
	struct qf_cpu *c = qf_cpu(cpu);
	int error;

	if (!c)
		return -ENOENT;
	c->cpu = (u32)cpu;
	c->machine.cpu = (u32)cpu;
	counts[qf_cpu_index(cpu)].online = 1;
	raised.online[qf_cpu_index(cpu)] = 1;
	raised.kicks[qf_cpu_index(cpu)] = QF_KICKS;
	bpf_timer_init(&c->timer, &cpus, 1 /* CLOCK_MONOTONIC */);
	bpf_timer_set_callback(&c->timer, qf_timer);
	bpf_spin_lock(&c->lock);
	error = qf_add(&c->machine, qf_best_effort_slot(cpu), &be);
	bpf_spin_unlock(&c->lock);
	return error;
}

#endif
