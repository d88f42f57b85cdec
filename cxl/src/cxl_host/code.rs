//! Message codes that a host knows.
//!
//! One byte each.
//!
//! Source: PCIe 6.0 section 2.2.8.

/// `PME_Turn_Off`, broadcast.
pub const PME_TURN_OFF: u8 = 0x19;
/// `PME_TO_Ack`, gathered.
pub const PME_TO_ACK: u8 = 0x1B;
