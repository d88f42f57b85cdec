//! A PBR switch as a component of a fabric.
//!
//! Shape: [`component::Switch`] is what commands see and change; its agent is all that it does itself, at the far end of its
//! port of role `agent`.
//! Units: picoseconds (`dataplane::time`), bytes.
//! Source: docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §4, §5.
//!
//! Pure: time is a parameter, no thread, no I/O of its own.

pub mod component;
