/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the kernel path: changes of parameters that the receiving kernel checks and applies. User space writes the
 * options, the keys, and the record of a peer before its first key; only BPF writes everything else.
 */
#ifndef QF_PATH_H
#define QF_PATH_H

#ifdef __bpf__
#include "qf_bpf.h"
#define QF_PATH_LOCK struct bpf_spin_lock
#else
#include <linux/types.h>
#define QF_PATH_LOCK __u32
#endif

#define QF_PATH_MAGIC 0x31565051u /* "QPV1"; the last character is the version */
#define QF_PATH_BATCH 64          /* changes in one datagram, or in one aggregate of datagrams */
#define QF_PATH_PEERS 256
#define QF_PATH_CHANNELS 64
#define QF_PATH_PARAMETERS 16     /* of each channel */

/* A change on the wire: little endian, one after the other in the payload of a UDP datagram. */
struct qf_path_change {
	__u32 magic;
	__u32 peer;      /* the number that the receiver gave the sender */
	__u32 epoch;     /* the generation of the key */
	__u16 channel;
	__u16 parameter;
	__s64 value;
	__u64 sequence;  /* rises within an epoch */
	__u64 tag[2];    /* SipHash-2-4 with 128 bits, of the 32 bytes above */
};

/* The address and port of this host to which changes are sent, in network byte order. */
struct qf_path_options {
	__u32 address[4]; /* an IPv4 address is in the first word */
	__u16 port;
	__u16 version;    /* 4 or 6 */
};

/* A key. The one of peer p and epoch e is number 2p + (e & 1), so that two successive epochs are valid at once. */
struct qf_path_key {
	QF_PATH_LOCK lock;
	__u32 epoch;    /* 0: no key */
	__u64 key[2];
	__u64 channels; /* bit c: the peer may change the parameters of channel c */
};

/* What the kernel remembers of a peer. */
struct qf_path_peer {
	QF_PATH_LOCK lock;
	__u32 epoch;    /* of the last change */
	__u64 sequence; /* of the last change */
	__u64 full_at;  /* when the peer's bucket is full, ns of CLOCK_MONOTONIC */
	__u64 cost_ns;  /* time in which the bucket earns one change */
	__u64 depth_ns; /* the time that fills the bucket */
};

/* The present value of a parameter, in one cache line. */
struct qf_path_word {
	__s64 value;
	__u64 version;  /* odd while the other fields change; 0: never set */
	__u64 sequence;
	__u64 time;     /* when the value was stored, ns of CLOCK_MONOTONIC */
	__u32 peer;
	__u32 epoch;
	__u64 zero[3];
};

/* What became of a change. Only an accepted one has an effect. */
enum qf_path_outcome {
	QF_PATH_ACCEPTED,
	QF_PATH_MALFORMED, /* a wrong length or magic number */
	QF_PATH_UNKNOWN,   /* no key of this peer and epoch */
	QF_PATH_FORGED,    /* a wrong tag */
	QF_PATH_DENIED,    /* a channel that the peer may not change, or no such parameter */
	QF_PATH_REPLAYED,  /* not newer than the peer's last change */
	QF_PATH_TOO_MANY,  /* above the peer's rate */
};

/* Outcomes at one CPU. */
struct qf_path_counts {
	__u64 of[8];
};

_Static_assert(sizeof(struct qf_path_change) == 48, "no holes");
_Static_assert(sizeof(struct qf_path_options) == 20, "no holes");
_Static_assert(sizeof(struct qf_path_key) == 32, "no holes");
_Static_assert(sizeof(struct qf_path_peer) == 40, "no holes");
_Static_assert(sizeof(struct qf_path_word) == 64, "one cache line");
_Static_assert(sizeof(struct qf_path_counts) == 64, "one cache line");

#endif
