//! The I/O module's page: the sockets of interest, and the active sockets.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::SOCKETS;

const SOCKET_WORDS: usize = SOCKETS / 64;

/// The sockets of interest (`socket_interest` of the papers). Written by the application.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketInterest {
    flag: AtomicU32,
    waiting: AtomicU32,
    _pad: [AtomicU64; 7],
    fd_list: [AtomicU64; SOCKET_WORDS],
    updated_fd_list: [AtomicU64; SOCKET_WORDS],
}

/// The active sockets (`socket_ready` of the papers). Written by the kernel; the application takes bits.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ReadySockets {
    flag: AtomicU32,
    _pad: [AtomicU32; 15],
    fd_active: [AtomicU64; SOCKET_WORDS],
}

/// The page of the I/O module, which replaces `select()`.
///
/// **Meaning of a bit in `fd_active`.** Since the bit was last taken, data arrived at the socket, its peer closed,
/// or a connection arrived (listening socket). The bit is a stored edge, not a level: after taking a bit, read (or
/// accept) until `EAGAIN`, or put the bit back with [`SocketPage::keep`]. Take the bit before reading, so that data
/// that arrives in between sets it again.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketPage {
    interest: SocketInterest,
    ready: ReadySockets,
}

const _: () = assert!(size_of::<SocketPage>() == SocketPage::READY as usize + 64 + 8 * SOCKET_WORDS);

impl SocketPage {
    /// Offset of `socket_interest.waiting`, in bytes from the begin of the page.
    pub const WAITING: u32 = 4;
    /// Offset of `socket_interest.fd_list`.
    pub const FD_LIST: u32 = 64;
    /// Offset of `socket_ready`, whose first word is its flag.
    pub const READY: u32 = 64 + 16 * SOCKET_WORDS as u32;
    /// Offset of `socket_ready.fd_active`.
    pub const FD_ACTIVE: u32 = Self::READY + 64;

    /// Sets whether events of this socket are wanted. Returns `false` if the descriptor is not below [`SOCKETS`].
    pub fn set_interest(&self, fd: u32, wanted: bool) -> bool {
        let Some(word) = self.interest.fd_list.get(fd as usize / 64) else { return false };
        let mask = 1 << (fd % 64);
        match wanted {
            true => word.fetch_or(mask, Ordering::AcqRel),
            false => word.fetch_and(!mask, Ordering::AcqRel),
        };
        self.interest.updated_fd_list[fd as usize / 64].fetch_or(mask, Ordering::AcqRel);
        self.interest.flag.fetch_add(1, Ordering::AcqRel);
        true
    }

    pub fn is_interested(&self, fd: u32) -> bool {
        let word = self.interest.fd_list.get(fd as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (fd % 64) & 1 == 1)
    }

    /// Number of changes of interest; wraps around.
    pub fn interest_flag(&self) -> u32 {
        self.interest.flag.load(Ordering::Acquire)
    }

    /// Number of events of sockets of interest; wraps around.
    pub fn ready_flag(&self) -> u32 {
        self.ready.flag.load(Ordering::Acquire)
    }

    /// Takes the active sockets among descriptors `64·word` to `64·word + 63`, one bit each.
    pub fn take_active(&self, word: usize) -> u64 {
        match self.ready.fd_active.get(word) {
            Some(bits) if bits.load(Ordering::Relaxed) != 0 => bits.swap(0, Ordering::AcqRel),
            _ => 0,
        }
    }

    /// Takes the bit of every active socket up to descriptor `highest` and calls `each` with it. Returns the number
    /// of sockets.
    pub fn for_each_active(&self, highest: u32, mut each: impl FnMut(u32)) -> usize {
        let words = (highest as usize / 64 + 1).min(SOCKET_WORDS);
        (0..words).map(|word| for_each_bit(self.take_active(word), |bit| each(word as u32 * 64 + bit))).sum()
    }

    /// Sets the bit again. Use it if there is more to read later, and after a socket was bound, because earlier
    /// data is not reported.
    pub fn keep(&self, fd: u32) {
        if let Some(word) = self.ready.fd_active.get(fd as usize / 64) {
            word.fetch_or(1 << (fd % 64), Ordering::AcqRel);
        }
    }

    /// Whether any socket up to descriptor `highest` is active.
    pub fn any_active(&self, highest: u32) -> bool {
        let words = (highest as usize / 64 + 1).min(SOCKET_WORDS);
        self.ready.fd_active[..words].iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Like [`super::Up::may_sleep`], for sockets up to descriptor `highest`.
    pub fn may_sleep(&self, highest: u32) -> bool {
        self.interest.waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let active = self.any_active(highest);
        if active {
            self.interest.waiting.store(0, Ordering::Relaxed);
        }
        !active
    }
}

fn for_each_bit(mut bits: u64, mut each: impl FnMut(u32)) -> usize {
    let count = bits.count_ones() as usize;
    while bits != 0 {
        each(bits.trailing_zeros());
        bits &= bits - 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Box<SocketPage> {
        let words = || [const { AtomicU64::new(0) }; SOCKET_WORDS];
        let interest = SocketInterest {
            flag: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            _pad: [const { AtomicU64::new(0) }; 7],
            fd_list: words(),
            updated_fd_list: words(),
        };
        let ready =
            ReadySockets { flag: AtomicU32::new(0), _pad: [const { AtomicU32::new(0) }; 15], fd_active: words() };
        Box::new(SocketPage { interest, ready })
    }

    #[test]
    fn the_words_have_the_offsets_that_the_hooks_use() {
        use std::mem::offset_of;
        let ready = offset_of!(SocketPage, ready);
        assert_eq!(offset_of!(SocketInterest, waiting), SocketPage::WAITING as usize);
        assert_eq!(offset_of!(SocketInterest, fd_list), SocketPage::FD_LIST as usize);
        assert_eq!(ready, SocketPage::READY as usize);
        assert_eq!(ready + offset_of!(ReadySockets, fd_active), SocketPage::FD_ACTIVE as usize);
    }

    #[test]
    fn a_change_of_interest_is_stored_and_counted() {
        let page = page();
        assert!(page.set_interest(70, true) && page.is_interested(70) && !page.is_interested(6));
        assert!(page.set_interest(70, false) && !page.is_interested(70));
        assert!(!page.set_interest(SOCKETS as u32, true) && !page.is_interested(SOCKETS as u32));
        assert_eq!(page.interest_flag(), 2);
        assert_eq!(page.interest.updated_fd_list[1].load(Ordering::Relaxed), 1 << 6);
    }

    #[test]
    fn a_taken_socket_is_cleared_and_a_kept_one_returns() {
        let page = page();
        [3, 64, 1000].into_iter().for_each(|fd| page.keep(fd));
        page.keep(SOCKETS as u32);
        let taken = |highest| {
            let mut fds = Vec::new();
            page.for_each_active(highest, |fd| fds.push(fd));
            fds
        };
        assert_eq!((taken(63), taken(70)), (vec![3], vec![64]));
        assert!(page.any_active(1000) && !page.any_active(900));
        assert!(page.may_sleep(900) && !page.may_sleep(u32::MAX));
        assert_eq!((taken(u32::MAX), page.take_active(SOCKET_WORDS)), (vec![1000], 0));
    }
}
