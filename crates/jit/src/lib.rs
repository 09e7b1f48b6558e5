//! E-code as machine code in user space.
