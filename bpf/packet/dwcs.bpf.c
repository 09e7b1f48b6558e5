// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A queueing discipline that sends packets by Dynamic Window-Constrained Scheduling. One object is loaded for each
 * interface, so that what is here in one piece belongs to one queue, whose lock the kernel holds around every call.
 *
 * Source: the thesis, §2.4; decisions in docs/design/0014-packets.md.
 */
#include "kernel.h"
#include "machine.h"

/* Where a packet's IP header lies in memory. */
struct reader {
	const unsigned char *ip;
};

QF_INLINE bool read_bytes(void *to, u32 bytes, struct reader *from, u32 offset)
{
	return !bpf_probe_read_kernel(to, bytes, from->ip + offset);
}

#include "classify.h"

/* Steps without a packet to send, after which the kernel is asked to come back at once: bounds a call's time. */
#define STEPS_MAX 512
/* A watchdog may come so much later if that saves a wake-up, ns. */
#define WATCHDOG_SLACK 1000

#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

/* Real packets, in the places that the machine names. */
struct cell {
	struct sk_buff __kptr *skb;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct cell);
	__uint(max_entries, PLACES);
} cells SEC(".maps");

/* The cgroup of the socket that sent it; 0 where there is none (forwarded, or a handshake's answer). */
QF_INLINE u64 cgroup_of(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || sk->__sk_common.skc_state == TCP_TIME_WAIT || sk->__sk_common.skc_state == TCP_NEW_SYN_RECV)
		return 0;
	return sk->sk_cgrp_data.cgroup ? sk->sk_cgrp_data.cgroup->kn->id : 0;
}

QF_INLINE u32 classify(struct sk_buff *skb)
{
	struct reader reader = { .ip = skb->head + skb->network_header };

	return kinds ? stream_of(skb->mark, kinds & QF_NET_CGROUP ? cgroup_of(skb) : 0, &reader) : NONE;
}

/*
 * The time for a decision. A packet that comes into an empty queue is asked for at once: the clock is not read twice.
 * Where it is asked for later (the device was busy), the next decision has the time as it is.
 */
u64 time_of_first;

QF_INLINE u64 time_now(void)
{
	u64 now = time_of_first;

	time_of_first = 0;
	return now ? now : bpf_ktime_get_ns();
}

SEC("struct_ops/qf_enqueue")
int BPF_PROG(qf_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	u32 len = packet_len(skb), stream = classify(skb);
	struct cell *cell;
	int place;

	time_of_first = bpf_ktime_get_ns();
	place = put(stream, len, time_of_first);

	if (place < 0)
		goto drop;
	cell = bpf_map_lookup_elem(&cells, &place);
	if (!cell)
		goto drop; /* cannot be: places are below PLACES */
	skb = bpf_kptr_xchg(&cell->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free); /* cannot be: the place was free */
	if (sch->q.qlen++)
		time_of_first = 0;
	sch->qstats.backlog += len;
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	sch->qstats.drops++;
	return NET_XMIT_DROP;
}

/* Takes the packet out of a place. */
QF_INLINE struct sk_buff *taken_from(struct Qdisc *sch, const struct next *next)
{
	struct cell *cell = bpf_map_lookup_elem(&cells, &next->place);
	struct sk_buff *skb;

	if (!cell)
		return NULL;
	skb = bpf_kptr_xchg(&cell->skb, NULL);
	if (skb) {
		sch->q.qlen--;
		sch->qstats.backlog -= next->len;
	}
	return skb;
}

QF_INLINE void come_back(struct Qdisc *sch, u64 at)
{
	stats.watchdogs++;
	bpf_qdisc_watchdog_schedule(sch, at, WATCHDOG_SLACK);
}

/* Steps on after the first, which changed something or dropped a packet. */
QF_INLINE u32 step_on(struct Qdisc *sch, struct next *next, u32 verdict, u64 now)
{
	struct sk_buff *skb;
	int i;

	bpf_for(i, 0, STEPS_MAX) {
		if (verdict == DROP) {
			skb = taken_from(sch, next);
			if (skb) {
				bpf_kfree_skb(skb);
				sch->qstats.drops++;
			}
		} else if (verdict != AGAIN) {
			break;
		}
		verdict = step(next, now);
	}
	return verdict;
}

SEC("struct_ops/qf_dequeue")
struct sk_buff *BPF_PROG(qf_dequeue, struct Qdisc *sch)
{
	struct sk_buff *skb;
	struct next next = {};
	u32 verdict;
	u64 now;

	if (!sch->q.qlen)
		return NULL;
	now = time_now();
	verdict = step(&next, now);
	if (unlikely(verdict == AGAIN || verdict == DROP))
		verdict = step_on(sch, &next, verdict, now);
	if (verdict == SEND) {
		skb = taken_from(sch, &next);
		if (skb)
			bpf_qdisc_bstats_update(sch, skb);
		return skb;
	}
	if (verdict != IDLE)
		come_back(sch, verdict == WAIT ? next.until : now);
	return NULL;
}

/* One interface for each object: its state is in one piece. */
SEC("struct_ops/qf_init")
int BPF_PROG(qf_init, struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	if (stats.ifindex)
		return -EBUSY;
	stats.ifindex = sch->dev_queue->dev->ifindex;
	return 0;
}

SEC("struct_ops/qf_reset")
void BPF_PROG(qf_reset, struct Qdisc *sch)
{
	struct sk_buff *skb;
	struct cell *cell;
	u32 place;

	bpf_for(place, 0, PLACES) {
		u32 key = place;

		cell = bpf_map_lookup_elem(&cells, &key);
		if (!cell)
			break;
		skb = bpf_kptr_xchg(&cell->skb, NULL);
		if (skb)
			bpf_kfree_skb(skb);
	}
	empty(bpf_ktime_get_ns());
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops/qf_destroy")
void BPF_PROG(qf_destroy, struct Qdisc *sch)
{
	stats.ifindex = 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops qf_dwcs = {
	.enqueue = (void *)qf_enqueue,
	.dequeue = (void *)qf_dequeue,
	.init = (void *)qf_init,
	.reset = (void *)qf_reset,
	.destroy = (void *)qf_destroy,
	.id = "qf_dwcs",
};

QF_LICENSE;
