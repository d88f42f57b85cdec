//! PCIe and CXL.io TLPs, non-flit and flit mode, and what a PBR link puts around them.
//! Shape: views over octets, and plain structs that emit.
//! Units: octets and double words (DW, 4 octets); big-endian.
//! Source: wire-formats.md 3; PCIe 6.0 section 2.2; CXL 3.1 section 7.7.6.
