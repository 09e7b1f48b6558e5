//! Schedulers side by side: the same workload under the default scheduler, SCHED_DEADLINE and Q-Fabric's own.
//!
//! | question | module |
//! |---|---|
//! | how is a job of known length computed | [`work`] |
//! | which programs take part, and what do they report | [`actor`], [`role`], [`trace`] |
//! | how is each put under its scheduler | [`regime`], [`link`] |
//! | which experiments are there | [`experiment`] |
//! | what came out, and is it what was promised | [`row`], [`claims`] |
//! | how is it shown | [`report`] |
//!
//! Approach: every experiment is a grid of settings; for each setting the competitors run one after another
//! (interleaved, so that a host that changes changes for all), with the same programs, the same jobs and, where a
//! competitor takes budgets, the same budgets. Every task is a process of its own that waits for a common start;
//! what it saw of its jobs comes back when it is over. Results are rows, one JSON object a line.
#![forbid(unsafe_code)]

pub mod actor;
pub mod claims;
pub mod experiment;
pub mod link;
pub mod regime;
pub mod report;
pub mod role;
pub mod row;
pub mod trace;
pub mod work;
