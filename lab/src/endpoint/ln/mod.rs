//! Lightweight Notification on the control socket: a device's copies of a host's lines, and the watchers of each line.
//!
//! [`super::ln_report`] has the commands and answers; [`requester`] carries them out at a device, [`completer`] at a host.
//!
//! Source: docs/endpoint.md "Lightweight Notification"; PCIe 5.0 section 6.21.

pub mod completer;
pub mod requester;
