//! The order of all locks: a thread that holds one takes only those further down. `docs/design/0027-nothing-hangs.md` says why each
//! two of them meet.

/// `link`: the network's configuration, while it is read again and the network joined anew.
pub const NETWORK_CONFIG: u16 = 100;
/// `link`: held while the network is left and joined again.
pub const REOPENING: u16 = 110;
/// `daemon`: the policies of channels, while one is started or stopped.
pub const POLICIES: u16 = 120;
/// `daemon`: interfaces under packet scheduling; held while the kernel is asked.
pub const NET: u16 = 130;
/// `daemon`: one installation of a subscription at a time; held while programs are compiled and loaded.
pub const SETUP: u16 = 140;
/// `daemon`: what this host monitors; held while files of the kernel are read.
pub const MONITORS: u16 = 150;
/// `linux`: events of kernel handlers, while the dispatcher takes them.
pub const EVENT_RING: u16 = 160;
/// `linux`: programs that write a `memory_up` on demand; held while one is loaded, at the first event that needs it.
pub const MEMORY_WRITER: u16 = 170;

/// Locks of a larger rank are waited for by threads that carry events: whoever holds one of them asks neither the kernel
/// to load, nor the network, nor a file.
pub const LAST_THAT_MAY_BLOCK: u16 = 199;

/// `daemon`: services, subscriptions, connections of ECalls.
pub const ECALLS_REGISTRY: u16 = 200;
/// `daemon`: events that wait for the dispatcher.
pub const EVENT_QUEUE: u16 = 210;
/// `daemon`: events of one subscription that wait for a handler thread.
pub const BACKLOG: u16 = 211;
/// `daemon`: handler threads and what is ready for them.
pub const HANDLER_THREADS: u16 = 212;
/// `daemon`: what a subscription has in the kernel.
pub const INSTALLED: u16 = 213;
/// `daemon`: whether a subscription is active.
pub const SUBSCRIPTION_STATE: u16 = 214;
/// `daemon`: faults of a subscription within the current second.
pub const FAULTS: u16 = 215;
/// `daemon`: a handler and its variables, while it runs.
pub const HANDLER: u16 = 216;
/// `daemon`: misses on their way to the dispatcher.
pub const MISSES: u16 = 217;
/// `daemon`: a `memory_up` that the daemon writes.
pub const MEMORY_UP: u16 = 218;

/// `daemon`: connections of channels, their members and credit.
pub const CHANNELS_REGISTRY: u16 = 300;
/// `daemon`: answers of other hosts to what was asked of their filters.
pub const ASKED: u16 = 310;

/// `link`: the timer's thread.
pub const TIMER: u16 = 390;
/// `link`, `daemon`: the node of channels.
pub const NODE: u16 = 401;
/// `daemon`: what waits for policies, and which of them computes.
pub const POLICY_SEATS: u16 = 450;
/// `daemon`: what a policy decided.
pub const RECORD: u16 = 500;
/// `daemon`: tables of rates, by channel.
pub const PACES: u16 = 502;
/// `daemon`: channels whose requests go to the least loaded.
pub const LEAST: u16 = 503;
/// `daemon`: what applications were handed, by channel.
pub const REPORTS: u16 = 504;
/// `daemon`: whose filters are.
pub const OWNED: u16 = 505;
/// `daemon`: offers of other hosts.
pub const OFFERS: u16 = 506;
/// `daemon`: who waits for an offer.
pub const WAITING: u16 = 507;
/// `daemon`: what the control thread says of loans.
pub const LOAN_WORDS: u16 = 508;
/// `daemon`: readings that are to be told later.
pub const DELAYS: u16 = 509;
/// `daemon`: the rates of one channel.
pub const PACE_TABLE: u16 = 510;
/// `link`: channels whose frames are wanted.
pub const WANTED: u16 = 520;
/// `link`: hosts that are connected, or are known to be there.
pub const PEERS: u16 = 521;
/// `link`: one connection's backlog, or publishers of one kind.
pub const SENDING: u16 = 522;
/// `link`: what was declared to the engine, and threads that are joined at its end.
pub const DECLARED: u16 = 523;
/// `daemon`: what the node has said and nobody has carried out yet.
pub const MAILBOX: u16 = 600;

/// `daemon`: what waits to be closed.
pub const CLOSER: u16 = 690;
/// `daemon`: places for connections.
pub const PLACES: u16 = 700;
/// `daemon`: taken while something is logged, with whatever lock is held.
pub const LOG: u16 = 900;
