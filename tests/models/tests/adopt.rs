//! Models how the queue in the kernel reads changes of a stream that user space writes (`bpf/packet/adopt.h`, in
//! C, and `Config::write` in `linux`). This file repeats the same loads, stores and barriers. Loom reorders what
//! the BPF compiler or a processor such as aarch64 may reorder.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use qfabric_models::explore;

/// `qf_net_config` with one stream of two words.
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

/// The queue's copy of the configuration.
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

/// Two changes run concurrently with two packets. When both changes are complete, a third packet follows.
fn packets_during_changes(barrier: fn()) {
    explore(3, move || {
        let config = Arc::new(Config::new());
        let shared = config.clone();
        let writing = thread::spawn(move || [1, 2].into_iter().for_each(|value| shared.write(value)));
        let mut queue = Queue::default();
        for _ in 0..2 {
            queue.adopt(&config, barrier);
            assert_eq!(queue.words[0], queue.words[1], "the words belong to two changes");
            assert_eq!(queue.words[0], queue.change / 2, "the words belong to another change");
        }
        writing.join().unwrap();
        queue.adopt(&config, barrier);
        assert_eq!(queue.words, [2, 2], "the last change was missed");
    });
}

#[test]
fn the_queue_reads_a_stream_whole_and_never_misses_the_last_change() {
    packets_during_changes(|| fence(Ordering::SeqCst));
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn without_barriers_the_queue_reads_mixed_words_or_misses_a_change() {
    packets_during_changes(|| ());
}
