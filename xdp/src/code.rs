//! Instructions: what the loader puts into the program of each port.
//!
//! Shape: words of 64 bits, as bpf(2) takes them; a call of a helper that there is not stands for a
//! constant or a function of the kernel.
//! Units: instructions.
//! Source: Linux `Documentation/bpf/standardization/instruction-set.rst`.

use aya_obj::generated::bpf_insn;

const CALL: u64 = 0x85;
const MOV: u64 = 0xB7;
const JEQ: u64 = 0x15;
/// Source "register" of a call that means a function of the kernel.
const KERNEL_FUNCTION: u64 = 2;
/// Instructions that are never reached, before a program that is bound to an interface.
///
/// Linux (6.18 and those before) keeps a bound program's address for when its interface goes, and does
/// not change it when the verifier has to move the program to more pages, for what it adds to it: then
/// the interface goes, and the kernel reads memory that it has freed. What is never reached is taken
/// out first, and leaves room for what is added.
const SLACK: u16 = 1_024;

/// One instruction as a word: operation, registers, offset, constant.
pub(crate) fn word(instruction: bpf_insn) -> u64 {
    let registers = u64::from(instruction.dst_reg() | instruction.src_reg() << 4);
    let (offset, constant) = (instruction.off.cast_unsigned(), instruction.imm.cast_unsigned());
    u64::from(instruction.code)
        | registers << 8
        | u64::from(offset) << 16
        | u64::from(constant) << 32
}

/// Sets register 0.
pub(crate) fn constant(value: i32) -> u64 {
    MOV | u64::from(value.cast_unsigned()) << 32
}

/// Calls the function of the kernel with this number.
pub(crate) fn kernel_function(id: u32) -> u64 {
    CALL | KERNEL_FUNCTION << 12 | u64::from(id) << 32
}

/// `code` with each placeholder replaced, and slack before it if it is to be bound.
pub(crate) fn filled(code: &[u64], put: &[(usize, u64)], bound: bool) -> Vec<u64> {
    let mut filled = if bound { slack() } else { Vec::new() };
    filled.extend(code.iter().map(|&word| {
        let instead = put.iter().find(|(number, _)| word == (CALL | (*number as u64) << 32));
        instead.map_or(word, |(_, instead)| *instead)
    }));
    filled
}

/// A jump over instructions that do nothing.
fn slack() -> Vec<u64> {
    let mut slack = vec![constant(0), JEQ | u64::from(SLACK) << 16];
    slack.resize(2 + usize::from(SLACK), constant(0));
    slack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_nothing_else() {
        let code = [CALL | 7 << 32, CALL | 0x7EF1 << 32, MOV | 0x7EF1 << 32];
        let put = [(0x7EF1, constant(-61)), (0x7EF2, constant(1))];
        assert_eq!(filled(&code, &put, false), [code[0], 0xFFFF_FFC3_0000_00B7, code[2]]);
        let bound = filled(&code, &put, true);
        assert_eq!(bound.len(), 1_024 + 5);
        assert_eq!(bound[1] >> 16 & 0xFFFF, 1_024, "the jump lands at the program");
        assert_eq!(bound[1_026..], filled(&code, &put, false));
        assert_eq!(kernel_function(5), 0x0000_0005_0000_2085);
    }
}
