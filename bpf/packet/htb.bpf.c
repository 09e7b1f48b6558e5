// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The mechanism for older kernels: a hierarchical token bucket has a class per stream, and this classifier chooses the
 * class of a packet by the same selectors as the discipline in BPF.
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

#define FROM_IP_HEADER 1 /* BPF_HDR_START_NET */

struct reader {
	struct __sk_buff *skb;
};

QF_INLINE bool read_bytes(void *to, u32 bytes, struct reader *from, u32 offset)
{
	return !bpf_skb_load_bytes_relative(from->skb, offset, to, bytes, FROM_IP_HEADER);
}

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
