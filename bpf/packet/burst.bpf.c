// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A busy link, for measurements. When the lower interface gets a packet with the trigger's mark, the queue above it is
 * sending that packet, so the packets that this program then puts into that queue must wait. Everything sent is
 * dropped.
 */
#include "qf_bpf.h"
#include "qf_net.h"

/* The first members of a packet as classifiers see it (include/uapi/linux/bpf.h). The layout is fixed, not relocated by
 * name. */
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
		bpf_set_hash(skb, skb->mark); /* fq classifies flows by it */
		bpf_clone_redirect(skb, burst.above, 0);
	}
	return TCX_DROP;
}

QF_LICENSE;
