//! Codes of messages that a host handles.
//!
//! Source: PCIe 6.0 section 2.2.8.

/// `PME_Turn_Off`, broadcast by the root before power goes.
pub const PME_TURN_OFF: u8 = 0x19;
/// `PME_TO_Ack`, which switches gather into one.
pub const PME_TO_ACK: u8 = 0x1B;
