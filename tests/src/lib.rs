//! Conformance and end-to-end tests.
