//! Fuzz target `parser`: hands the fuzzer's bytes to the body that plain tests share.
//!
//! Bytes in; a panic is a finding, kept as `fuzz/regress/parser/NAME.bin`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weft_tests::fuzz::parser::run(bytes));
