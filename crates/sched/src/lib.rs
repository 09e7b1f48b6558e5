//! qfabric-sched
