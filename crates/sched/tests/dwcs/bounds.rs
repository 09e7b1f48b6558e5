//! How long a task waits at most.
