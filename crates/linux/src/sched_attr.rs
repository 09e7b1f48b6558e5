//! `sched_setattr` and `sched_getattr`.
