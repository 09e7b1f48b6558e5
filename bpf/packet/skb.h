/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets as classifiers see them, and the reader for classify.h. */
#ifndef QF_PACKET_SKB_H
#define QF_PACKET_SKB_H

#include "qf_bpf.h"

/* The first members (include/uapi/linux/bpf.h). The layout is fixed, not relocated by name. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol; /* in network byte order */
};

#define FROM_IP_HEADER 1 /* BPF_HDR_START_NET */

struct reader {
	struct __sk_buff *skb;
};

QF_INLINE bool read_bytes(void *to, u32 bytes, struct reader *from, u32 offset)
{
	return !bpf_skb_load_bytes_relative(from->skb, offset, to, bytes, FROM_IP_HEADER);
}

#endif
