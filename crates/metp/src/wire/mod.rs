//! The datagrams of METP. Numbers are in network byte order.

/// Bytes of the header of a data TPDU.
pub const HEADER_BYTES: u16 = 24;

pub(crate) const MIN_TPDU: u16 = 256;
pub(crate) const MAX_TPDU: u16 = 65_000;

/// Allowed sizes of a datagram, header included.
pub const TPDU_SIZES: std::ops::RangeInclusive<u16> = MIN_TPDU..=MAX_TPDU;
