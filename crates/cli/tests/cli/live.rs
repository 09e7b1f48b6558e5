//! `run` and `probe` on real programs. Where this host offers no mechanism, they must say so.
