//! The engine against a model of memory and fabric. `checks` test the promises, `random` copies with random faults,
//! `parts` are tables.
//!
//! Units: bytes; nanoseconds.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

mod checks;
mod parts;
mod random;
