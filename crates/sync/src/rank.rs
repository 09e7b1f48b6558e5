//! The order of all locks: a thread that holds a lock takes only locks with a larger rank.
//! `docs/design/0027-nothing-hangs.md` lists where two locks meet, and why.

/// `link`: the network's configuration; held while it is read again and the network is joined again.
pub const NETWORK_CONFIG: u16 = 100;
/// `link`: held while the network is left and joined again.
pub const REOPENING: u16 = 110;
/// `daemon`: the policies of channels; held while a policy is started or stopped.
pub const POLICIES: u16 = 120;
/// `daemon`: interfaces under packet scheduling; held during requests to the kernel.
pub const NET: u16 = 130;
/// `daemon`: the table of one memory reserve; held while pages are locked.
pub const MEMORY_POOL: u16 = 135;
/// `daemon`: lets one subscription be installed at a time; held while programs are compiled and loaded.
pub const SETUP: u16 = 140;
/// `daemon`: the watched attributes of this host; held while files of the kernel are read.
pub const MONITORS: u16 = 150;
/// `daemon`: the account of energy; held while files of the kernel are read.
pub const ENERGY_ACCOUNT: u16 = 155;
/// `daemon`: the address of the web page and the tokens of its users; held while the page is opened.
pub const WEB: u16 = 157;
/// `linux`: the ring of events from kernel handlers; held while the dispatcher takes events.
pub const EVENT_RING: u16 = 160;
/// `linux`: the handlers of deferred values of a session; held while one begins or ends.
pub const DEFERRED_HANDLERS: u16 = 165;
/// `linux`: programs that write a `memory_up` on demand; held while a program is loaded, at the first event that
/// needs it.
pub const MEMORY_WRITER: u16 = 170;
/// `linux`: the interfaces of a chain; held while the chain is attached to one.
pub const FOLLOWED: u16 = 172;
/// `linux`: the ports whose connections have a chain; held for look-ups only.
pub const STREAM_PORTS: u16 = 174;
/// `linux`: the programs that handlers share at a hook; held while one is attached or removed.
pub const SHARED_HOOKS: u16 = 175;
/// `linux`: the dispatch table of one CPU and its threads; held while their policies change.
pub const DISPATCH_TABLE: u16 = 180;

/// `daemon`: the hosts that change parameters here by the kernel path; held while their keys are written.
pub const PATH_RECEIVING: u16 = 190;
/// `daemon`: the words of other hosts that this host changes; held while a datagram is sent.
pub const PATH_SENDING: u16 = 191;

/// Threads that carry events wait for locks with a larger rank. A thread that holds such a lock must not load a
/// program into the kernel, use the network, or read a file.
pub const LAST_THAT_MAY_BLOCK: u16 = 199;

/// `daemon`: services, subscriptions and connections of ECalls.
pub const ECALLS_REGISTRY: u16 = 200;
/// `daemon`: handlers of this host on other hosts, and of other hosts here; held for look-ups only.
pub const DEPLOYMENTS: u16 = 205;
/// `daemon`: events that wait for the dispatcher.
pub const EVENT_QUEUE: u16 = 210;
/// `daemon`: events of one subscription that wait for a handler thread.
pub const BACKLOG: u16 = 211;
/// `daemon`: handler threads and the subscriptions that are ready to run.
pub const HANDLER_THREADS: u16 = 212;
/// `daemon`: the kernel part of a subscription.
pub const INSTALLED: u16 = 213;
/// `daemon`: whether a subscription is active.
pub const SUBSCRIPTION_STATE: u16 = 214;
/// `daemon`: the number of faults of a subscription in the current second.
pub const FAULTS: u16 = 215;
/// `daemon`: a handler and its variables; held while it runs.
pub const HANDLER: u16 = 216;
/// `daemon`: the users with handler threads.
pub const HANDLER_USERS: u16 = 219;
/// `daemon`: the CPU time that the handler threads of a user may take.
pub const ALLOWANCE: u16 = 220;
/// `daemon`: the limits and grants of ECalls in force; held for a moment only.
pub const ECALLS_CONFIG: u16 = 221;
/// `daemon`: misses that wait for the dispatcher.
pub const MISSES: u16 = 217;
/// `daemon`: a `memory_up` that the daemon writes.
pub const MEMORY_UP: u16 = 218;

/// `daemon`: connections of channels, with their members and credit.
pub const CHANNELS_REGISTRY: u16 = 300;
/// `daemon`: answers of other hosts to requests about their filters.
pub const ASKED: u16 = 310;

/// `link`: the timer thread.
pub const TIMER: u16 = 390;
/// `link`: the time for which threads have submitted without a pause.
pub const SUBMITTING: u16 = 391;
/// `link`, `daemon`: the node of channels.
pub const NODE: u16 = 401;
/// `daemon`: events that wait for policies, and which policies are computing.
pub const POLICY_SEATS: u16 = 450;
/// `daemon`: the decisions of a policy.
pub const RECORD: u16 = 500;
/// `daemon`: tables of rates, by channel.
pub const PACES: u16 = 502;
/// `daemon`: channels that send requests to the least loaded host.
pub const LEAST: u16 = 503;
/// `daemon`: counts of events that applications received, by channel.
pub const REPORTS: u16 = 504;
/// `daemon`: which connection owns which filter.
pub const OWNED: u16 = 505;
/// `daemon`: offers of other hosts.
pub const OFFERS: u16 = 506;
/// `daemon`: requests that wait for an offer.
pub const WAITING: u16 = 507;
/// `daemon`: messages of the control thread about loans and contracts.
pub const LOAN_WORDS: u16 = 508;
/// `daemon`: delay requests for readings.
pub const DELAYS: u16 = 509;
/// `daemon`: the rates of one channel.
pub const PACE_TABLE: u16 = 510;
/// `link`: channels whose frames this host receives.
pub const WANTED: u16 = 520;
/// `link`: hosts that are connected or known to be present.
pub const PEERS: u16 = 521;
/// `link`: the backlog of one connection, or the publishers of one kind.
pub const SENDING: u16 = 522;
/// `link`: declarations to the engine, and threads to join when the engine closes.
pub const DECLARED: u16 = 523;
/// `daemon`: the memory reserves of programs that link the library.
pub const MEMORY_RESERVES: u16 = 530;
/// `daemon`: the broker of memory; the control thread takes it, so it is held for a moment only.
pub const MEMORY_ACCOUNTS: u16 = 531;
/// `daemon`: the promised rates of processes; held for a moment only.
pub const PROMISED_RATES: u16 = 532;
/// `daemon`: what streams of packets count, and decisions about them; held for a moment only.
pub const STREAM_BOARD: u16 = 533;
/// `daemon`: the contracts of the configuration, as they are shown; held for a moment only.
pub const CONFIGURED: u16 = 534;
/// `daemon`: the rates of loans to other hosts; held for a moment only.
pub const LENT_RATES: u16 = 535;
/// `daemon`: actions that the node requested and that are not carried out yet.
pub const MAILBOX: u16 = 600;

/// `daemon`: messages of other hosts about ECalls, or about the kernel path, that wait for their thread.
pub const FAR_INBOX: u16 = 610;

/// `daemon`: the section `[channels]` in force; held while it is replaced, or a reference to it is copied.
pub const CHANNELS_CONFIG: u16 = 670;
/// `daemon`: the record of what happened; held for a few instructions.
pub const TIMELINE: u16 = 680;
/// `daemon`: objects that wait to be closed.
pub const CLOSER: u16 = 690;
/// `daemon`: what a connection to the web page holds; held while it takes or returns a place.
pub const PAGE_SEAT: u16 = 695;
/// `daemon`: the shares of users in the answers of the API; held for a few instructions.
pub const ANSWERS: u16 = 697;
/// `daemon`: free places for connections.
pub const PLACES: u16 = 700;
/// `daemon`: the groups of processes that are connected to the API; held for a look-up.
pub const CONNECTED: u16 = 701;
