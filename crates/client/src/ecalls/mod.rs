//! ECalls: receive events of the kernel and of other programs within microseconds, and run code where they happen.
//!
//! ```no_run
//! use qfabric_client::Client;
//! use qfabric_client::ecalls::{Ecalls, MemoryUp, SubscriptionBuilder};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let ecalls = Ecalls::connect(&Client::connect()?)?;
//! let wanted = SubscriptionBuilder::to("net.rx")
//!     .option("interface", "lo")
//!     .code("if (input.len > 1400) return 1; return 0;")
//!     .memory_up(MemoryUp::default());
//! let mut events = ecalls.subscribe(&wanted)?;
//! while let Some(event) = events.next(Duration::from_secs(1))? {
//!     println!("{} {:?}", event.time_ns, event.data);
//! }
//! # Ok(())
//! # }
//! ```
//! # The paper's names (003 §3, 000 §3.2)
//!
//! | ECalls | here |
//! |---|---|
//! | `/proc` list of services | [`Ecalls::services`], `<run dir>/services/` |
//! | `register_service(NAME)` | [`Ecalls::register_service`] |
//! | `raise_event(id, pid, data, deadline, cpu)` | [`OwnService::raise_event`] |
//! | `unregister_service` | dropping the [`OwnService`] |
//! | `struct ecalls` | [`SubscriptionBuilder`] |
//! | `ECalls_subscribe` | [`Ecalls::subscribe`] |
//! | `ECalls_unsubscribe` | [`Subscription::unsubscribe`], or dropping it |
//! | memory up: flag, ring, bit pattern | [`Subscription::flag`], [`Subscription::try_next`] |
//! | memory down: fast user-ECall | [`Ecalls::attribute`], [`Attribute::set`] |
//! | fast user-ECall whose handler runs at once | [`Subscription::call`], [`Subscription::call_or_wait`] |
//! | deferred user-ECall; its moment for each call | [`Ecalls::defer`]; [`Ecalls::defer_at`] |
//! | generic system call | [`Ecalls::call`], answered by [`Ecalls::next_notice`] and [`Ecalls::reply`] |
//! | `socket_interest`, `socket_ready` | [`Ecalls::sockets`] |
//! | real-time signals with data | [`SubscriptionBuilder::signal`], received by the application's signal handler or by [`Signals`] |
//!
//! The connection is a lease: services, handlers and subscriptions end with the connection or with the process.

mod connection;
mod lease;
mod offers;
mod service;
mod session;
mod sockets;
mod subscribe;
mod subscription;

pub use lease::Notice;
pub use offers::Offers;
pub use service::OwnService;
pub use session::{Attribute, Ecalls};
pub use sockets::Sockets;
pub use subscribe::SubscriptionBuilder;
pub use subscription::{CallOutcome, Event, Subscription};

pub use qfabric_shm::Signals;
pub use qfabric_types::api::ecalls::{
    Author, CHANNEL_SERVICE, DeploymentAnswer, DeploymentRequest, HandlerInfo, Layout, LeaseId, MemoryUp, OnFault,
    OptionInfo, Origin, RaiseOutcome, ServiceId, ServiceInfo, State, Step, SubscriptionCounters, SubscriptionId,
    SubscriptionInfo, SubscriptionRequest, UserBudget,
};
pub use qfabric_types::event_json;
pub use qfabric_types::memory::{CALL_VALUES, CallVerdict, Moment, Stamp};
