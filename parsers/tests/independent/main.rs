//! Parsers held against crates that share no code with them.
//!
//! One binary; a module for each of them.
//!
//! Units: bytes.
//! Source: each module's own.

mod etherparse;
mod partial;
mod pnet;
mod rtlp;
