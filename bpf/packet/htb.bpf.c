// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The mechanism for older kernels: a hierarchical token bucket has a class per stream, and this classifier chooses the
 * class of a packet by the same selectors as the discipline in BPF.
 */
#include "qf_bpf.h"
#include "qf_net.h"
#include "skb.h"
#include "classify.h"

/* The class of the first stream. */
const volatile u32 first_class SEC(".rodata.classes") = 0;

SEC("tc")
int qf_class(struct __sk_buff *skb)
{
	struct reader reader = { .skb = skb };
	u64 in_use = kinds;
	u32 stream = stream_of(in_use, skb->mark, in_use & QF_NET_CGROUP ? bpf_skb_cgroup_id(skb) : 0, &reader);

	/* 0 is the class of best effort. */
	return stream < QF_NET_STREAMS ? first_class + stream : 0;
}

QF_LICENSE;
