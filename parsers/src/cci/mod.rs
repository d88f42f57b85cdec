//! CCI messages: header, return codes, and the payload of each command.
//! Shape: views over octets, and plain structs that emit.
//! Units: octets; little-endian.
//! Source: wire-formats.md 4; CXL 3.1 sections 7.6.7, 7.7.13, 8.2.9.
