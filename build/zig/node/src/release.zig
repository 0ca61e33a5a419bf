//! What this binary is, for those who talk to it.

pub const version = "0.1.0";

/// Grows when a line or an option changes its meaning; new fields and options alone leave it.
pub const protocol = 1;
