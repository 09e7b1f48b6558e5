// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A queueing discipline that sends packets by Dynamic Window-Constrained Scheduling. One object is loaded per
 * interface, so that its global state belongs to one queue. The kernel holds the lock of that queue around every call.
 *
 * Source: the thesis, §2.4; decisions in docs/design/0014-packets.md.
 */
#include "kernel.h"
#include "machine.h"

/* The position of a packet's IP header in memory. */
struct reader {
	const unsigned char *ip;
};

QF_INLINE bool read_bytes(void *to, u32 bytes, struct reader *from, u32 offset)
{
	return !bpf_probe_read_kernel(to, bytes, from->ip + offset);
}

#include "classify.h"

/* Steps without a packet to send, after which the kernel is asked to call again at once: bounds the time of a call. */
#define STEPS_MAX 512
/* A watchdog may fire this much later if that saves a wake-up, ns. */
#define WATCHDOG_SLACK 1000

#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

/* Real packets, at the places that the machine assigns. */
struct cell {
	struct sk_buff __kptr *skb;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct cell);
	__uint(max_entries, PLACES);
} cells SEC(".maps");

/* The cgroup of the socket that sent the packet. 0 if there is none (forwarded packets, answers in a handshake). */
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
	u64 in_use = kinds;

	return in_use ? stream_of(in_use, skb->mark, in_use & QF_NET_CGROUP ? cgroup_of(skb) : 0, &reader) : NONE;
}

/* The only packet of the queue. It has no place. */
struct sk_buff __kptr *lone_skb SEC(".bss.lone") __hidden __attribute__((aligned(8)));

/* Puts a packet into its place. Returns a packet to be freed, if any: the same one if the place does not exist, or the
 * place's former packet. */
QF_INLINE struct sk_buff *put_into(int place, struct sk_buff *skb)
{
	struct cell *cell = bpf_map_lookup_elem(&cells, &place);

	return cell ? bpf_kptr_xchg(&cell->skb, skb) : skb;
}

/* Gives the only packet a place, because a second one has arrived. */
QF_SUBPROGRAM void make_room(u64 now)
{
	struct sk_buff *skb = bpf_kptr_xchg(&lone_skb, NULL);

	if (skb)
		skb = put_into(seat_lone(packet_len(skb), now, bpf_jiffies64()), skb);
	if (skb)
		bpf_kfree_skb(skb); /* cannot happen: places are below PLACES, and this one was free */
}

/* Indices of the arguments that the kernel passes to enqueue. */
enum enqueue_argument { SKB, SCH, TO_FREE };

#define SKB_OF(arguments) ((struct sk_buff *)(arguments)[SKB])
#define SCH_OF(arguments) ((struct Qdisc *)(arguments)[SCH])
#define TO_FREE_OF(arguments) ((struct bpf_sk_buff_ptr *)(arguments)[TO_FREE])
/* The packet has not been classified yet. */
#define UNKNOWN 0xffffffffu

QF_INLINE int take_lone(unsigned long long *arguments, u32 len)
{
	struct Qdisc *sch = SCH_OF(arguments);
	struct sk_buff *skb;

	sch->q.qlen = 1;
	sch->qstats.backlog = len;
	skb = bpf_kptr_xchg(&lone_skb, SKB_OF(arguments));
	if (skb)
		bpf_qdisc_skb_drop(skb, TO_FREE_OF(arguments)); /* cannot happen: the queue was empty */
	return NET_XMIT_SUCCESS;
}

QF_SUBPROGRAM int enqueue_any(unsigned long long *arguments, u32 stream)
{
	struct sk_buff *skb = SKB_OF(arguments);
	struct Qdisc *sch = SCH_OF(arguments);
	u32 len = packet_len(skb);
	u64 now = bpf_ktime_get_ns();
	int place;

	if (stream == UNKNOWN)
		stream = classify(skb);
	if (!sch->q.qlen && settle_lone(stream, len, now, bpf_jiffies64()))
		return take_lone(arguments, len);
	if (lone.who)
		make_room(now);
	place = put(stream, len, now);
	if (place < 0) {
		bpf_qdisc_skb_drop(skb, TO_FREE_OF(arguments));
		sch->qstats.drops++;
		return NET_XMIT_DROP;
	}
	skb = put_into(place, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, TO_FREE_OF(arguments)); /* cannot happen, as in make_room() */
	sch->q.qlen++;
	sch->qstats.backlog += len;
	return NET_XMIT_SUCCESS;
}

/*
 * Contains only what most packets need while the link keeps up. Everything else is in other functions, so that the
 * compiler saves hardly any registers here.
 */
SEC("struct_ops/qf_enqueue")
int qf_enqueue(unsigned long long *arguments)
{
	struct sk_buff *skb = SKB_OF(arguments);
	struct qf_net_mark *place = place_of_mark(skb->mark);
	u32 stream = UNKNOWN;

	if (kinds == QF_NET_MARK && (place->mark == skb->mark || place->mark == NO_MARK)) {
		stream = place->stream;
		if (!SCH_OF(arguments)->q.qlen && put_lone(stream, packet_len(skb), bpf_jiffies64()))
			return take_lone(arguments, packet_len(skb));
	}
	return enqueue_any(arguments, stream);
}

QF_INLINE void count_gone(struct Qdisc *sch, u32 len)
{
	sch->q.qlen--;
	sch->qstats.backlog -= len;
}

QF_INLINE struct sk_buff *dequeue_lone(struct Qdisc *sch)
{
	struct sk_buff *skb = bpf_kptr_xchg(&lone_skb, NULL);
	u32 len;

	if (skb) {
		len = packet_len(skb);
		count_gone(sch, len);
		send_lone(len);
		bpf_qdisc_bstats_update(sch, skb);
	}
	return skb;
}

/* Takes a packet out of its place. */
QF_INLINE struct sk_buff *taken_from(struct Qdisc *sch, const struct next *next)
{
	struct cell *cell = bpf_map_lookup_elem(&cells, &next->place);
	struct sk_buff *skb;

	if (!cell)
		return NULL;
	skb = bpf_kptr_xchg(&cell->skb, NULL);
	if (skb)
		count_gone(sch, next->len);
	return skb;
}

QF_INLINE void come_back(struct Qdisc *sch, u64 at)
{
	stats.watchdogs++;
	bpf_qdisc_watchdog_schedule(sch, at, WATCHDOG_SLACK);
}

/* Performs the steps after the first one, which changed something or dropped a packet. */
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
			return verdict;
		}
		verdict = i < STEPS_MAX - 1 ? step(next, now) : AGAIN;
	}
	return verdict;
}

/* A function of its own, so that the cases of an empty queue and of an only packet save no registers. */
QF_SUBPROGRAM struct sk_buff *dequeue_one(struct Qdisc *sch)
{
	u64 now = bpf_ktime_get_ns();
	struct next next = {};
	u32 verdict = step(&next, now);
	struct sk_buff *skb;

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

SEC("struct_ops/qf_dequeue")
struct sk_buff *BPF_PROG(qf_dequeue, struct Qdisc *sch)
{
	if (!sch->q.qlen)
		return NULL;
	return lone.who ? dequeue_lone(sch) : dequeue_one(sch);
}

/* The address of the queue that has this object's state, only to compare it. 0: none. */
u64 owner;

/* Refuses a second interface: an object has the state of one queue. */
SEC("struct_ops/qf_init")
int BPF_PROG(qf_init, struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	if (owner)
		return -EBUSY;
	owner = (u64)sch;
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
	skb = bpf_kptr_xchg(&lone_skb, NULL);
	if (skb)
		bpf_kfree_skb(skb);
	empty(bpf_ktime_get_ns());
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

/* The kernel also destroys a queue whose init was refused. The queue in use keeps the state then: any user may try to
 * attach this discipline to an interface of a network namespace of their own. */
SEC("struct_ops/qf_destroy")
void BPF_PROG(qf_destroy, struct Qdisc *sch)
{
	if (owner != (u64)sch)
		return;
	owner = 0;
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
