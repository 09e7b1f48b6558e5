// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The machine alone, on any kernel, for tests and benchmarks. Each call takes the lock that the scheduler would hold,
 * so that the verifier checks the machine as the scheduler runs it.
 */
#include "machine.h"

struct qf_test_cpu {
	struct bpf_spin_lock lock;
	__u32 padding;
	struct qf_machine machine;
	/* The last decision. */
	struct qf_decision running;
	struct qf_decision peeked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct qf_test_cpu);
} cpus SEC(".maps");

struct qf_test_tick timeline[QF_TEST_TICKS] SEC(".bss.timeline");

/* Performs every operation that is not a decision. */
static __always_inline int command(struct qf_machine *m, const struct qf_test_call *c, const struct qf_config *config)
{
	switch (c->op) {
	case QF_TEST_ADD:
		return qf_add(m, c->slot, config);
	case QF_TEST_REMOVE:
		return qf_remove(m, c->slot);
	case QF_TEST_CHANGE:
		return qf_change(m, c->slot, config, c->now_ns);
	case QF_TEST_WAKE:
		return qf_wake(m, c->slot, c->now_ns);
	case QF_TEST_BLOCK:
		return qf_block(m, c->slot, c->now_ns, c->argument);
	case QF_TEST_JOB_END:
		return qf_job_end(m, c->slot, c->now_ns);
	case QF_TEST_RAISE:
		return qf_raise(m, c->slot, c->argument);
	case QF_TEST_NETWORK:
		return qf_set_network(m, c->argument);
	case QF_TEST_LEAVE:
		return qf_leave(m, c->slot);
	case QF_TEST_ENTER:
		return qf_enter(m, c->slot);
	case QF_TEST_CPU:
		m->cpu = c->argument;
		return 0;
	}
	return -EINVAL;
}

SEC("syscall")
int call(struct qf_test_call *c)
{
	__u32 key = c->cpu & 1;
	struct qf_test_cpu *cpu = bpf_map_lookup_elem(&cpus, &key);
	struct qf_test_call copy = *c;
	int answer;

	if (!cpu)
		return -ENOENT;
	bpf_spin_lock(&cpu->lock);
	answer = command(&cpu->machine, &copy, &copy.config);
	bpf_spin_unlock(&cpu->lock);
	return answer;
}

/* Makes a decision, or only computes it. Before that, charges the time that the last decision gave. */
SEC("syscall")
int decide(struct qf_test_decide *c)
{
	__u32 key = c->cpu & 1;
	struct qf_test_cpu *cpu = bpf_map_lookup_elem(&cpus, &key);
	__u64 now = c->now_ns, used = c->used_ns;
	__u32 best_effort = c->best_effort, peek = c->peek, account_only = c->account_only;
	struct qf_decision *d;

	if (!cpu)
		return -ENOENT;
	d = &cpu->running;
	bpf_spin_lock(&cpu->lock);
	if (used)
		qf_account(&cpu->machine, d, used, now);
	if (peek)
		qf_peek(&cpu->machine, now, best_effort, &cpu->peeked);
	else if (!account_only)
		qf_pick(&cpu->machine, now, best_effort, d);
	bpf_spin_unlock(&cpu->lock);
	c->decision = peek ? cpu->peeked : *d;
	c->counts = cpu->machine.counts;
	c->pending = cpu->machine.pending;
	return 0;
}

/* Runs `ticks` units of time from `now` on, each with a decision and its account. Records them in the timeline if
 * requested. */
SEC("syscall")
int run(struct qf_test_run *c)
{
	__u32 key = 0, ticks = c->ticks, at, record = c->record;
	struct qf_test_cpu *cpu = bpf_map_lookup_elem(&cpus, &key);
	__u64 now = c->now_ns, step = c->step_ns, begin = bpf_ktime_get_ns();
	struct qf_decision *d;

	if (!cpu)
		return -ENOENT;
	d = &cpu->running;
	at = cpu->machine.zero;
	while (at < ticks) {
		qf_may_goto_break;
		bpf_spin_lock(&cpu->lock);
		qf_pick(&cpu->machine, now, c->best_effort, d);
		now += step;
		qf_account(&cpu->machine, d, step, now);
		bpf_spin_unlock(&cpu->lock);
		if (record) {
			struct qf_test_tick *tick = &timeline[at & (QF_TEST_TICKS - 1)];

			tick->slot = d->slot;
			tick->kind = d->kind;
			tick->rule = d->rule;
			tick->task_server = !!d->task_server;
		}
		at++;
		qf_opaque(at);
	}
	c->done = at;
	c->took_ns = bpf_ktime_get_ns() - begin;
	return 0;
}

/* For comparison with the trees: visits every server for each decision. */
static __attribute__((noinline)) __u32 scan_first(struct qf_machine *m, __u32 slots)
{
	__u32 slot = qf_first_slot(m), first = m->zero;

	while (slot <= slots) {
		struct qf_server *s = qf_server(slot);

		qf_may_goto_break;
		if (s->release_ns <= m->now_ns) {
			if (s->deadline_ns <= m->now_ns) {
				qf_lost(m, slot);
				s->rank = qf_rank(s, 0);
			}
			if (!first || qf_before(s, qf_server(first)))
				first = slot;
		}
		slot = qf_next_slot(slot);
	}
	return first;
}

static __always_inline void scan_account(struct qf_server *s, __u64 used)
{
	s->used_ns += used;
	s->left_ns -= used < s->left_ns ? used : s->left_ns;
	if (s->left_ns)
		return;
	qf_count_served(s);
	qf_next_period(s);
	s->rank = qf_rank(s, 0);
}

SEC("syscall")
int scan(struct qf_test_run *c)
{
	__u32 key = 0, ticks = c->ticks, at, slots = c->record;
	struct qf_test_cpu *cpu = bpf_map_lookup_elem(&cpus, &key);
	__u64 now = c->now_ns, step = c->step_ns, begin = bpf_ktime_get_ns();

	if (!cpu)
		return -ENOENT;
	at = cpu->machine.zero;
	while (at < ticks) {
		__u32 slot;

		qf_may_goto_break;
		bpf_spin_lock(&cpu->lock);
		cpu->machine.now_ns = now;
		slot = scan_first(&cpu->machine, slots);
		if (slot)
			scan_account(qf_server(slot), step);
		bpf_spin_unlock(&cpu->lock);
		now += step;
		at++;
		qf_opaque(at);
	}
	c->done = at;
	c->took_ns = bpf_ktime_get_ns() - begin;
	return 0;
}

SEC("syscall")
int control(struct qf_test_control *c)
{
	struct qf_control_config config = c->config;

	return qf_control_set(c->slot, &config);
}

QF_LICENSE;
