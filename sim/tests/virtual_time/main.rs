//! Switches in virtual time: scenarios, replays, chaos and the checkers that watch them.
//!
//! One binary with a module for each subject.

mod buffers;
mod chaos;
mod checkers;
mod cut_through;
mod late_drops;
mod network;
mod replay;
mod saturation;
mod scenario;
mod scenarios;
mod smoke;
