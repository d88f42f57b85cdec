//! Fuzz target `cci`: hands the fuzzer's octets to the body that plain tests share.
//!
//! Shape: octets in; a panic is a finding, kept as `fuzz/regress/cci/NAME.bin`.
//! Units: octets.
//! Source: none of its own.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| weft_tests::fuzz::cci::run(octets));
