//! How this host's control groups are laid out, and what that means for real-time threads.
