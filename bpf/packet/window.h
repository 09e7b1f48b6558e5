/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Windows of streams: rules a and b of DWCS (the thesis, §2.4.1) and the rank that Table 1 gives x'/y'. */
#ifndef QF_PACKET_WINDOW_H
#define QF_PACKET_WINDOW_H

#include "stream.h"

#define Y_NOW_MAX 65535

/* Lower comes first: x' = 0 before all others, by higher y'; then lower x'/y', then lower x'. Exact for y' <= 255; y'
 * exceeds y only while x' = 0. */
QF_INLINE u64 rank_of(u64 x, u64 y)
{
	return x ? ((x << 32) / y) << 16 | x : Y_NOW_MAX - y;
}

QF_INLINE void set_window(struct stream *s, u32 i, u32 x, u32 y)
{
	if (!x && !y) {
		x = s->x;
		y = s->y;
	}
	s->x_now = x;
	s->y_now = y;
	s->rank = rank_of(x, y);
	stats.stream[i & STREAM_MASK].window_now = (u64)x << 32 | y;
}

/* Rule a: the period was served. */
QF_INLINE void rule_a(struct stream *s, u32 i)
{
	if (s->y_now > s->x_now)
		set_window(s, i, s->x_now, s->y_now - 1);
	else if (s->x_now)
		set_window(s, i, s->x_now - 1, s->y_now - 1);
}

/* Rule b: `periods` periods were missed. More than one is possible only while x' = 0, which does not change then. */
QF_INLINE void rule_b(struct stream *s, u32 i, u64 periods)
{
	if (s->x_now)
		set_window(s, i, s->x_now - 1, s->y_now - 1);
	else
		set_window(s, i, 0, periods < Y_NOW_MAX - s->y_now ? s->y_now + periods : Y_NOW_MAX);
}

#endif
