//! Lightweight Notification on the control socket: a device's copies of a host's lines, and who watches which.
//!
//! [`report`] is what is asked and answered, [`requester`] carries it out at a device, [`completer`] at a host.
//!
//! Units: bytes, lines.
//! Source: docs/endpoint.md "Lightweight Notification"; PCIe 5.0 section 6.21.

pub mod completer;
pub mod report;
pub mod requester;
