//! Hosts as people run them: daemons in network namespaces, joined by Zenoh under certificates that the terminal made.
//! What crashes, silence, cut cables, slow links and bad input do to the others. Needs root, `ip`, `tc` and `nsenter`;
//! elsewhere it says so and passes.

#[path = "../../../crates/cli/tests/cli/answer.rs"]
mod answer;
mod asking;
mod churn;
mod clocks;
mod combine;
mod conference;
mod conference_faults;
mod conference_links;
mod contracts;
mod creators;
mod deadlines;
mod delays;
mod ecalls;
mod far;
mod faults;
mod filters;
mod host;
mod kernel_path;
mod lan;
mod lending;
mod lent_rates;
mod pings;
#[path = "../../../crates/cli/tests/cli/player.rs"]
mod player;
mod rates;
mod refusals;
mod reload;
mod roles;
mod slow;
mod starved;
mod steps;
mod stranger;
mod stream_files;
mod talk;
