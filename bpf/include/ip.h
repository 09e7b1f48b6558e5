/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers of IP, in network byte order. */
#ifndef QF_IP_H
#define QF_IP_H

#include "qf_bpf.h"

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

struct header4 {
	u8 version_length;
	u8 unused[5];
	u16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 destination;
};

struct header6 {
	u8 version_class;
	u8 unused[5];
	u8 next_header;
	u8 hop_limit;
	u32 source[4];
	u32 destination[4];
};

#endif
