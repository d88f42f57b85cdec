//! The engine against a model of memory and fabric.
//! `checks` hold what is promised, `random` copies with chance in everything, `parts` are tables.
//!
//! Units: bytes; nanoseconds.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

mod checks;
mod parts;
mod random;
