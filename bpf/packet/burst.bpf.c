// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A busy link, for measurements: when the lower interface is given a packet with the trigger's mark, the queue above it
 * is sending that one, and so the packets which are put into it meanwhile have to wait. What goes out is dropped.
 */
#include "qf_bpf.h"
#include "qf_net.h"

/* The beginning of a packet as classifiers see it (include/uapi/linux/bpf.h): fixed, not found by name. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
};

#define TCX_DROP 2

const volatile struct qf_net_burst burst SEC(".rodata.burst") = {};

SEC("tcx/egress")
int qf_burst(struct __sk_buff *skb)
{
	u32 i;

	if (skb->mark != burst.trigger)
		return TCX_DROP;
	bpf_for(i, 0, burst.packets) {
		skb->mark = 1 + i % burst.streams;
		bpf_set_hash(skb, skb->mark); /* what fq tells flows by */
		bpf_clone_redirect(skb, burst.above, 0);
	}
	return TCX_DROP;
}

QF_LICENSE;
