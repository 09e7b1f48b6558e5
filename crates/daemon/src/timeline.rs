//! The timeline: a bounded record of what happened on this host, for `qfabric trace`.
//!
//! Every thread of the service may add records. A record costs one lock that is held for a few instructions, so the
//! control thread never waits long. Jobs, budgets and decisions are always recorded. Events of channels and of ECalls
//! may come a hundred thousand times a second, so at most [`EVENTS_PER_SECOND`] of a user are recorded and the rest is
//! counted.
//!
//! ```text
//! control thread, dispatcher, channels, policies ──add──> user 1000: [chunk][chunk] … [chunk]
//!                                                         user 1001: [chunk]            ──page──> API
//!                     full: the oldest chunk of the user with the most is emptied and used again
//! ```
//! Records are numbered twice: among all records, by which administrators read, and among those of their user, by which
//! this user reads. So both can be told how many records are missing, and a user learns nothing of others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::timeline::{Timeline, TimelineApplication, TimelineEvent, TimelineRecord};
use qfabric_types::{AppId, Instant};

use crate::auth::Peer;
use crate::problem;

/// Records in one chunk, the unit in which old records are discarded.
const CHUNK: usize = 128;
/// Chunks kept: 32 768 records. A minute of 250 jobs a second with a budget for each.
const CHUNKS: usize = 256;
/// Users whose records are kept. Fewer than chunks, so that the user with the most has several.
const USERS: usize = 64;
/// Limiters of events; users with the same remainder share one.
const LIMITERS: usize = 256;
/// Records of one page, and records that are looked at for one page. They bound the time that the lock is held.
const PAGE: usize = 1_024;
const LOOKED_AT: usize = 4_096;
/// Applications that have left and whose names are kept.
const FORMER: usize = 1_024;
/// Longest text of a record, in characters.
const TEXT: usize = 240;
/// Events of each kind of [`Frequent`] recorded per second and user.
const EVENTS_PER_SECOND: u32 = 200;
const SECOND_NS: u64 = 1_000_000_000;

/// The record of what happened. Shared by all threads of the service.
pub(crate) struct Recorder {
    records: Lock<Records, { rank::TIMELINE }>,
    /// By user, then by [`Frequent`].
    limiters: Vec<[Limiter; 3]>,
}

/// Events that may be frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frequent {
    /// A source submitted an event to a channel.
    Submitted,
    /// A sink received an event of a channel.
    Received,
    /// An event of ECalls was delivered.
    Ecall,
}

#[derive(Default)]
struct Records {
    users: BTreeMap<u32, Held>,
    /// Chunks of all users.
    chunks: usize,
    /// Number of the next record among all.
    next: u64,
    /// No record from this time on was discarded, of users that are not listed.
    since: Instant,
    applications: BTreeMap<AppId, TimelineApplication>,
    /// Applications that have left, the oldest first.
    former: VecDeque<AppId>,
}

/// The records that one user may see.
#[derive(Default)]
struct Held {
    /// All chunks but the last are full, none is empty.
    chunks: VecDeque<Vec<Entry>>,
    /// Number of the first record among those of the user.
    first: u64,
    /// No record from this time on was discarded.
    since: Instant,
}

struct Entry {
    /// Among all records.
    number: u64,
    record: TimelineRecord,
}

// 4 MiB for all records, without their texts.
const _: () = assert!(size_of::<Entry>() <= 128);

impl Held {
    fn end(&self) -> u64 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        self.first + (full + self.chunks.back().map_or(0, Vec::len)) as u64
    }

    fn last(&self) -> Option<&Entry> {
        self.chunks.back()?.last()
    }

    /// The oldest chunk, emptied.
    fn discard(&mut self) -> Option<Vec<Entry>> {
        let mut oldest = self.chunks.pop_front()?;
        self.first += oldest.len() as u64;
        let newest = oldest.iter().map(|entry| entry.record.at_ns.get()).max().unwrap_or(0);
        self.since = self.since.max(Instant::new(newest + 1));
        oldest.clear();
        Some(oldest)
    }

    /// Records from the user's number `start` on.
    fn from(&self, start: u64) -> impl Iterator<Item = &Entry> {
        let skip = (start - self.first) as usize;
        self.chunks.iter().skip(skip / CHUNK).flatten().skip(skip % CHUNK)
    }

    /// Records from the number `start` among all on.
    fn since_number(&self, start: u64) -> impl Iterator<Item = &Entry> {
        let before = |chunk: &Vec<Entry>| chunk.last().is_some_and(|entry| entry.number < start);
        let whole = self.chunks.partition_point(before);
        self.chunks.iter().skip(whole).flatten().skip_while(move |entry| entry.number < start)
    }
}

/// Limits the events of one kind. Without a lock: beyond the limit an event costs a few atomic operations. Threads
/// that begin a second at the same time may record a few events more.
#[derive(Default)]
struct Limiter {
    second: AtomicU64,
    taken: AtomicU32,
    /// Events that were not recorded.
    skipped: AtomicU64,
}

impl Limiter {
    fn takes(&self, at: Instant) -> bool {
        let second = at.get() / SECOND_NS;
        if self.second.swap(second, Relaxed) != second {
            self.taken.store(0, Relaxed);
        }
        let takes = self.taken.load(Relaxed) < EVENTS_PER_SECOND;
        if takes {
            self.taken.fetch_add(1, Relaxed);
        } else {
            self.skipped.fetch_add(1, Relaxed);
        }
        takes
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new(Instant::ZERO)
    }
}

impl Recorder {
    /// A record that begins at `began`.
    pub(crate) fn new(began: Instant) -> Self {
        let records = Records { since: began, ..Records::default() };
        Recorder { records: Lock::new(records), limiters: (0..LIMITERS).map(|_| Default::default()).collect() }
    }

    /// Records that a contract came into force.
    pub(crate) fn joined(&self, application: TimelineApplication, at: Instant) {
        let (app, uid) = (application.id, application.owner.uid);
        let mut records = self.records.lock();
        records.applications.insert(app, application);
        records.push(uid, at, TimelineEvent::Joined { app });
    }

    /// Records an event about an application that has joined.
    pub(crate) fn add(&self, at: Instant, event: TimelineEvent) {
        let mut records = self.records.lock();
        let known = event.app().and_then(|app| records.applications.get(&app));
        let Some(uid) = known.map(|application| application.owner.uid) else { return };
        let left = if let TimelineEvent::Left { app } = event { Some(app) } else { None };
        records.push(uid, at, event);
        if let Some(app) = left {
            records.retire(app);
        }
    }

    /// Records what a policy of the user `uid` decided.
    pub(crate) fn decided(&self, uid: u32, at: Instant, event: TimelineEvent) {
        self.records.lock().push(uid, at, event);
    }

    /// Records an event that concerns a process of the user `uid`, unless there were too many in this second.
    pub(crate) fn frequent(&self, kind: Frequent, uid: u32, at: Instant, event: impl FnOnce() -> TimelineEvent) {
        if self.limiters_of(uid)[kind as usize].takes(at) {
            self.decided(uid, at, event());
        }
    }

    fn limiters_of(&self, uid: u32) -> &[Limiter; 3] {
        &self.limiters[uid as usize % LIMITERS]
    }

    /// The records from number `from` and time `since` on that `peer` may see.
    pub(crate) fn page(&self, peer: Peer, query: Query, now: Instant) -> Timeline {
        let skipped = |of: &[Limiter; 3]| of.iter().map(|limiter| limiter.skipped.load(Relaxed)).sum::<u64>();
        if peer.administers() {
            let skipped = self.limiters.iter().map(skipped).sum();
            return Timeline { skipped, ..self.records.lock().page_of_all(query, now) };
        }
        let uid = peer.owner.uid;
        Timeline { skipped: skipped(self.limiters_of(uid)), ..self.records.lock().page_of(uid, query, now) }
    }
}

/// Where a page begins, and what it may contain.
struct Range {
    /// Number of the first record, and after the last one.
    start: u64,
    end: u64,
    since: Instant,
}

impl Records {
    fn push(&mut self, uid: u32, at: Instant, mut event: TimelineEvent) {
        shorten(&mut event);
        let number = self.next;
        self.next += 1;
        if !self.users.contains_key(&uid) {
            self.forget_a_user();
            self.users.insert(uid, Held { first: number, since: self.since, ..Held::default() });
        }
        let is_full = |held: &Held| held.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK);
        let fresh = self.users.get(&uid).is_some_and(is_full).then(|| self.fresh_chunk());
        let Some(held) = self.users.get_mut(&uid) else { return };
        held.chunks.extend(fresh);
        if let Some(chunk) = held.chunks.back_mut() {
            chunk.push(Entry { number, record: TimelineRecord { at_ns: at, event } });
        }
    }

    /// An empty chunk: the oldest one of the user with the most if all are in use.
    fn fresh_chunk(&mut self) -> Vec<Entry> {
        if self.chunks < CHUNKS {
            self.chunks += 1;
            return Vec::with_capacity(CHUNK);
        }
        let largest = self.users.values_mut().max_by_key(|held| held.chunks.len());
        largest.and_then(Held::discard).unwrap_or_default()
    }

    /// Makes room for a further user: forgets the one whose last record is the oldest.
    fn forget_a_user(&mut self) {
        if self.users.len() < USERS {
            return;
        }
        let quiet = self.users.iter().min_by_key(|(_, held)| held.last().map(|entry| entry.number));
        let Some(mut held) = quiet.map(|(uid, _)| *uid).and_then(|uid| self.users.remove(&uid)) else { return };
        self.chunks -= held.chunks.len();
        while held.discard().is_some() {}
        self.since = self.since.max(held.since);
    }

    /// Keeps the name of an application that has left, until too many others have left.
    fn retire(&mut self, app: AppId) {
        self.former.push_back(app);
        if self.former.len() > FORMER
            && let Some(oldest) = self.former.pop_front()
        {
            self.applications.remove(&oldest);
        }
    }

    fn page_of_all(&self, query: Query, now: Instant) -> Timeline {
        let since = self.users.values().map(|held| held.since).fold(self.since, Instant::max);
        let end = query.before.min(self.next);
        let start = query.from.min(end);
        let mut users: Vec<_> = self.users.values().map(|held| held.since_number(start).peekable()).collect();
        let in_order = std::iter::from_fn(move || {
            let first = users.iter_mut().filter_map(|own| own.peek().map(|entry| entry.number)).min()?;
            users.iter_mut().find_map(|own| own.next_if(|entry| entry.number == first))
        });
        self.page(Range { start, end, since }, in_order.map(|entry| (entry.number, entry)), query, now)
    }

    fn page_of(&self, uid: u32, query: Query, now: Instant) -> Timeline {
        let Some(held) = self.users.get(&uid) else {
            return Timeline { now_ns: now, complete_since_ns: self.since, ..Timeline::default() };
        };
        let end = query.before.min(held.end());
        let start = query.from.min(end);
        let first = start.max(held.first);
        self.page(Range { start, end, since: held.since }, (first..).zip(held.from(first)), query, now)
    }

    fn page<'a>(
        &self,
        range: Range,
        entries: impl Iterator<Item = (u64, &'a Entry)>,
        query: Query,
        now: Instant,
    ) -> Timeline {
        let mut entries = entries.take_while(|(number, _)| *number < range.end);
        let (mut next, mut lost, mut records) = (range.start, 0, Vec::new());
        for _ in 0..LOOKED_AT {
            if records.len() >= PAGE {
                break;
            }
            let Some((number, entry)) = entries.next() else {
                next = range.end;
                break;
            };
            if entry.record.at_ns >= query.since {
                lost += number - next;
                records.push(entry.record.clone());
            }
            next = number + 1;
        }
        Timeline {
            now_ns: now,
            next,
            more: next < range.end,
            skipped: 0,
            lost: if query.from > 0 { lost } else { 0 },
            complete_since_ns: range.since,
            applications: self.named_by(&records),
            records,
        }
    }

    fn named_by(&self, records: &[TimelineRecord]) -> Vec<TimelineApplication> {
        let mut ids: Vec<AppId> = records.iter().filter_map(|record| record.event.app()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().filter_map(|id| self.applications.get(id)).cloned().collect()
    }
}

/// Cuts the text of an event to [`TEXT`] characters.
fn shorten(event: &mut TimelineEvent) {
    if let TimelineEvent::Decision { text, .. } | TimelineEvent::Policy { text, .. } = event
        && let Some((end, _)) = text.char_indices().nth(TEXT)
    {
        text.truncate(end);
        text.shrink_to_fit();
    }
}

/// Which records a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// Number of the first record; 0: from the oldest one on.
    pub from: u64,
    /// Number after the last record.
    pub before: u64,
    /// Only records of this time or later.
    pub since: Instant,
}

impl Default for Query {
    /// All records.
    fn default() -> Self {
        Query { from: 0, before: u64::MAX, since: Instant::ZERO }
    }
}

impl Query {
    /// Reads `from=NUMBER&before=NUMBER&since_ns=NUMBER`; each may be left out.
    pub(crate) fn parse(text: &str) -> Result<Query, Problem> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let shown: String = pair.chars().take(40).collect();
            let number = || value.parse::<u64>().map_err(|_| problem::invalid(format!("{shown:?} is not KEY=NUMBER")));
            match key {
                "from" => query.from = number()?,
                "before" => query.before = number()?,
                "since_ns" => query.since = Instant::new(number()?),
                _ => {
                    let known = "from=NUMBER, before=NUMBER or since_ns=NUMBER";
                    return Err(problem::invalid(format!("{shown:?} is unknown; use {known}")));
                }
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Owner;

    fn application(id: u64, uid: u32) -> TimelineApplication {
        TimelineApplication { id: AppId(id), name: format!("app{id}"), pid: 7, owner: Owner { uid, gid: uid } }
    }

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: uid } }
    }

    fn decision(app: u64, text: &str) -> TimelineEvent {
        TimelineEvent::Decision { app: AppId(app), text: text.to_owned() }
    }

    /// All pages from `from` on, as `peer` sees them.
    fn all(recorder: &Recorder, peer: Peer, from: u64) -> (Vec<TimelineRecord>, u64) {
        let (mut records, mut lost, mut query) = (Vec::new(), 0, Query { from, ..Query::default() });
        loop {
            let page = recorder.page(peer, query, Instant::new(1));
            assert!(page.records.len() <= PAGE);
            records.extend(page.records);
            lost += page.lost;
            query.from = page.next;
            if !page.more {
                return (records, lost);
            }
        }
    }

    #[test]
    fn a_user_sees_only_records_of_own_applications_and_root_sees_all() {
        let recorder = Recorder::default();
        for (app, uid) in [(1, 54_321), (2, 54_322)] {
            recorder.joined(application(app, uid), Instant::new(app));
            recorder.add(Instant::new(app), decision(app, "more"));
        }
        let seen = |uid| {
            let page = recorder.page(peer(uid), Query::default(), Instant::new(9));
            let names: Vec<String> = page.applications.into_iter().map(|app| app.name).collect();
            (page.records.len(), names.join(" "))
        };
        assert_eq!(seen(54_321), (2, "app1".to_owned()));
        assert_eq!(seen(54_322), (2, "app2".to_owned()));
        assert_eq!(seen(54_323), (0, String::new()));
        assert_eq!(seen(0), (4, "app1 app2".to_owned()));
    }

    #[test]
    fn pages_together_have_every_record_once_and_lost_records_are_counted() {
        let recorder = Recorder::default();
        recorder.joined(application(1, 5), Instant::new(0));
        let total = CHUNK * CHUNKS + 3 * CHUNK + 7;
        (1..total as u64).for_each(|at| recorder.add(Instant::new(at), decision(1, "")));
        let (records, lost) = all(&recorder, peer(0), 1);
        assert_eq!(records.len() as u64 + lost + 1, total as u64);
        assert!(lost > 0 && records.len() <= CHUNK * CHUNKS);
        assert!(records.windows(2).all(|pair| pair[0].at_ns.get() + 1 == pair[1].at_ns.get()));
        assert_eq!(all(&recorder, peer(0), total as u64), (vec![], 0), "nothing is new");
        assert_eq!(all(&recorder, peer(0), u64::MAX), (vec![], 0), "a number beyond the end");
    }

    /// As the web page reads: the end first, then older pages until none is left.
    #[test]
    fn pages_from_the_end_backwards_have_every_kept_record_once() {
        let recorder = Recorder::default();
        for at in 0..(CHUNK * CHUNKS + 3 * CHUNK + 7) as u64 {
            recorder.decided(5 + (at % 2) as u32, Instant::new(at), decision(1, ""));
        }
        for uid in [0, 5] {
            let begin = recorder.page(peer(uid), Query { from: u64::MAX, ..Query::default() }, Instant::new(1));
            assert!(begin.records.is_empty() && !begin.more, "nothing is newer than the end");
            let (mut before, mut times) = (begin.next, Vec::new());
            while before > 0 {
                let from = before.saturating_sub(PAGE as u64);
                let older = recorder.page(peer(uid), Query { from, before, ..Query::default() }, Instant::new(1));
                assert!(older.next == before && !older.more, "a page has room for all records between the numbers");
                times.splice(0..0, older.records.iter().map(|record| record.at_ns));
                before = if older.records.is_empty() || older.lost > 0 { 0 } else { from };
            }
            let forwards: Vec<_> = all(&recorder, peer(uid), 0).0.iter().map(|record| record.at_ns).collect();
            assert!(times == forwards && times.len() > PAGE, "{} backwards, {} forwards", times.len(), forwards.len());
        }
    }

    #[test]
    fn a_user_with_many_records_discards_only_own_ones() {
        let recorder = Recorder::new(Instant::new(1));
        let fill = |app, uid, records: usize| {
            recorder.joined(application(app, uid), Instant::new(7));
            (1..records as u64).for_each(|at| recorder.add(Instant::new(at + 7), decision(app, "")));
        };
        fill(1, 5, 300);
        fill(2, 6, 3 * CHUNK * CHUNKS);
        fill(1, 5, 300);
        let (own, lost) = all(&recorder, peer(5), 0);
        assert_eq!((own.len(), lost), (600, 0), "user 5 has lost records to user 6");
        let since = |uid| recorder.page(peer(uid), Query::default(), Instant::new(1)).complete_since_ns;
        assert_eq!(since(5), Instant::new(1));
        let (others, _) = all(&recorder, peer(6), 0);
        assert_eq!(since(6), others[0].at_ns, "the record of user 6 is complete from its first one on");
        assert_eq!((since(0), since(7)), (since(6), Instant::new(1)));
        let (seen, _) = all(&recorder, peer(0), 0);
        assert_eq!(seen.len(), own.len() + others.len());
        assert!(seen.len() <= CHUNK * CHUNKS && others.len() > CHUNK * (CHUNKS - 8));
    }

    #[test]
    fn a_user_is_told_how_many_of_own_records_are_missing() {
        let recorder = Recorder::default();
        recorder.decided(5, Instant::new(1), decision(1, ""));
        let next = recorder.page(peer(5), Query::default(), Instant::new(1)).next;
        recorder.decided(6, Instant::new(1), decision(1, ""));
        let total = CHUNK * CHUNKS + 3 * CHUNK + 7;
        (0..total).for_each(|_| recorder.decided(5, Instant::new(2), decision(1, "")));
        let (records, lost) = all(&recorder, peer(5), next);
        assert!(lost > 0);
        assert_eq!(records.len() as u64 + lost, total as u64);
    }

    #[test]
    fn beyond_the_most_users_the_one_that_is_quiet_longest_is_forgotten() {
        let recorder = Recorder::default();
        let users = 1..2 * USERS as u32;
        users.clone().for_each(|uid| recorder.decided(uid, Instant::new(u64::from(uid)), decision(1, "")));
        let kept = users.filter(|uid| !all(&recorder, peer(*uid), 0).0.is_empty()).collect::<Vec<_>>();
        assert_eq!(kept, (USERS as u32..2 * USERS as u32).collect::<Vec<_>>());
        let records = recorder.records.lock();
        assert_eq!((records.chunks, records.since), (USERS, Instant::new(USERS as u64)));
    }

    #[test]
    fn only_records_since_the_given_time_are_shown() {
        let recorder = Recorder::default();
        recorder.joined(application(1, 5), Instant::new(0));
        (1..100).for_each(|at| recorder.add(Instant::new(at), decision(1, "")));
        let query = Query { since: Instant::new(90), ..Query::default() };
        assert_eq!(recorder.page(peer(5), query, Instant::new(100)).records.len(), 10);
    }

    #[test]
    fn names_of_applications_that_left_are_kept_within_a_bound() {
        let recorder = Recorder::default();
        for app in 1..3 * FORMER as u64 {
            recorder.joined(application(app, 5), Instant::new(app));
            recorder.add(Instant::new(app), TimelineEvent::Left { app: AppId(app) });
        }
        let known = recorder.records.lock().applications.len();
        assert_eq!(known, FORMER);
        recorder.add(Instant::new(1), decision(1, "about an unknown application"));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let recorder = Recorder::default();
        recorder.joined(application(1, 5), Instant::new(0));
        recorder.add(Instant::new(1), decision(1, &"é".repeat(9_999)));
        let page = recorder.page(peer(5), Query::default(), Instant::new(2));
        assert_eq!(page.records[1].event, decision(1, &"é".repeat(TEXT)));
    }

    #[test]
    fn frequent_events_are_limited_per_second_and_counted() {
        let recorder = Recorder::default();
        let event = || TimelineEvent::Ecall { service: "net.rx".to_owned(), pid: 1 };
        for second in [5, 6] {
            let at = Instant::new(second * SECOND_NS);
            (0..10_000).for_each(|_| recorder.frequent(Frequent::Ecall, 5, at, event));
        }
        let page = recorder.page(peer(0), Query::default(), Instant::new(1));
        assert_eq!(page.records.len(), 2 * EVENTS_PER_SECOND as usize);
        assert_eq!(page.skipped, 20_000 - 2 * u64::from(EVENTS_PER_SECOND));
        recorder.frequent(Frequent::Ecall, 6, Instant::new(6 * SECOND_NS), event);
        assert_eq!(recorder.page(peer(6), Query::default(), Instant::new(1)).records.len(), 1, "of another user");
        recorder.frequent(Frequent::Received, 5, Instant::new(6 * SECOND_NS), event);
        assert_eq!(recorder.page(peer(0), Query::default(), Instant::new(1)).records.len(), page.records.len() + 2);
    }

    #[test]
    fn a_query_of_unknown_keys_or_no_number_is_refused() {
        let query = |from, since| Query { from, since: Instant::new(since), ..Query::default() };
        assert_eq!(Query::parse("").unwrap(), query(0, 0));
        assert_eq!(Query::parse("since_ns=7&from=3").unwrap(), query(3, 7));
        assert_eq!(Query::parse("before=9&from=3").unwrap(), Query { before: 9, ..query(3, 0) });
        for text in ["from=-1", "from", "from=1e3", "last=60s", "since_ns=99999999999999999999", &"x".repeat(9_999)] {
            let problem = Query::parse(text).unwrap_err();
            assert!(problem.code == "invalid" && problem.message.len() < 120, "{problem:?}");
        }
    }
}
