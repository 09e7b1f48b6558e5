//! Compares schedulers: the same workload under the default scheduler, SCHED_DEADLINE and Q-Fabric's own
//! schedulers.
//!
//! | question | module |
//! |---|---|
//! | how does a job compute for a known CPU time | [`work`] |
//! | which processes take part, and what do they report | [`actor`], [`role`], [`trace`] |
//! | how is a task put under each scheduler | [`regime`], [`link`] |
//! | which experiments are there | [`experiment`] |
//! | which messages keep their promised delay | [`delays`] |
//! | what are the results, and do they meet the claims | [`row`], [`claims`] |
//! | how are results shown | [`report`], [`timeline`] |
//!
//! Approach: every experiment is a grid of settings. For each setting the competitors run one after another, so
//! that a change of the host affects all of them. They use the same programs, the same jobs and, if a competitor
//! accepts budgets, the same budgets. Every task is a separate process that waits for a common start and reports
//! its jobs at the end. Results are rows, one JSON object per line.
#![forbid(unsafe_code)]

pub mod actor;
pub mod claims;
pub mod delays;
pub mod experiment;
pub mod link;
pub mod regime;
pub mod report;
pub mod role;
pub mod row;
pub mod timeline;
pub mod trace;
pub mod work;
