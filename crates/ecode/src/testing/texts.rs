//! Random programs as text.
