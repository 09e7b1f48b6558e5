//! How the queue in the kernel takes changes of a stream that user space writes (`bpf/packet/adopt.h`, C, and `Config::write`
//! in `linux`): the same loads, stores and barriers, written down once more. What the BPF compiler and a processor such as
//! aarch64 may reorder, loom reorders.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use qfabric_models::explore;

/// `qf_net_config`, with one stream of two words.
struct Config {
    changes: AtomicU64,
    change: AtomicU64,
    words: [AtomicU64; 2],
}

impl Config {
    fn new() -> Config {
        let word = || AtomicU64::new(0);
        Config { changes: word(), change: word(), words: [word(), word()] }
    }

    /// `Config::write`.
    fn write(&self, value: u64) {
        self.change.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.change.fetch_add(1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The queue.
#[derive(Default)]
struct Queue {
    changes_seen: u64,
    change: u64,
    words: [u64; 2],
}

impl Queue {
    /// `adopt` and `adopt_stream`.
    fn adopt(&mut self, config: &Config, barrier: fn()) {
        let changes = config.changes.load(Ordering::Relaxed);
        if changes == self.changes_seen {
            return;
        }
        self.changes_seen = changes;
        barrier();
        let change = config.change.load(Ordering::Relaxed);
        if change == self.change || change & 1 == 1 {
            return;
        }
        barrier();
        let words = [0, 1].map(|i| config.words[i].load(Ordering::Relaxed));
        barrier();
        if config.change.load(Ordering::Relaxed) == change {
            (self.change, self.words) = (change, words);
        }
    }
}

/// Two changes beside two packets; then, once both are there, a third packet.
fn packets_beside_changes(barrier: fn()) {
    explore(3, move || {
        let config = Arc::new(Config::new());
        let theirs = config.clone();
        let writing = thread::spawn(move || [1, 2].into_iter().for_each(|value| theirs.write(value)));
        let mut queue = Queue::default();
        for _ in 0..2 {
            queue.adopt(&config, barrier);
            assert_eq!(queue.words[0], queue.words[1], "torn");
            assert_eq!(queue.words[0], queue.change / 2, "the words of another change");
        }
        writing.join().unwrap();
        queue.adopt(&config, barrier);
        assert_eq!(queue.words, [2, 2], "the last change was missed");
    });
}

#[test]
fn a_stream_is_taken_whole_and_its_last_change_is_never_missed() {
    packets_beside_changes(|| fence(Ordering::SeqCst));
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn without_barriers_it_would_be() {
    packets_beside_changes(|| ());
}
