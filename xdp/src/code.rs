//! Instructions: fills in the program of each port.
//!
//! Instructions are words of 64 bits, as bpf(2) takes them. In the compiled program a call of a helper that does not
//! exist stands for a constant or a kernel function.
//!
//! Source: Linux `Documentation/bpf/standardization/instruction-set.rst`.

use aya_obj::generated::bpf_insn;

const CALL: u64 = 0x85;
const MOV: u64 = 0xB7;
const JEQ: u64 = 0x15;
/// Source "register" of a call to a function of the program, or of the kernel.
const OWN_FUNCTION: u64 = 1;
const KERNEL_FUNCTION: u64 = 2;
/// Instructions in front of a program that is bound to an interface, never reached.
///
/// Linux (6.18 and earlier) keeps the address of a bound program for when its interface is deleted. If the verifier
/// adds so many instructions that the program moves to more pages, the kernel does not update that address, and reads
/// freed memory later. Unreachable instructions are removed first, and leave room for those that are added.
const SLACK: u16 = 1_024;

/// Packs an instruction: operation, registers, offset, constant.
pub(crate) fn word(instruction: bpf_insn) -> u64 {
    let registers = u64::from(instruction.dst_reg() | instruction.src_reg() << 4);
    let (offset, constant) = (instruction.off.cast_unsigned(), instruction.imm.cast_unsigned());
    u64::from(instruction.code)
        | registers << 8
        | u64::from(offset) << 16
        | u64::from(constant) << 32
}

/// Sets register 0 to `value`.
pub(crate) fn constant(value: i32) -> u64 {
    MOV | u64::from(value.cast_unsigned()) << 32
}

/// Calls the kernel function with this BTF number.
pub(crate) fn kernel_function(id: u32) -> u64 {
    CALL | KERNEL_FUNCTION << 12 | u64::from(id) << 32
}

/// Calls the function `ahead` instructions behind the next one.
fn own_function(ahead: usize) -> u64 {
    CALL | OWN_FUNCTION << 12 | (ahead as u64) << 32
}

/// Replacement for a placeholder.
#[derive(Clone, Copy)]
pub(crate) enum Put<'a> {
    One(u64),
    /// A function, which is put behind the program and called.
    Function(&'a [u64]),
}

/// Replaces each placeholder in `code`, and puts slack in front if the program will be bound to an interface.
pub(crate) fn filled(code: &[u64], put: &[(usize, Put<'_>)], bound: bool) -> Vec<u64> {
    let mut filled = if bound { slack() } else { Vec::new() };
    let first = filled.len();
    let mut behind: Vec<u64> = Vec::new();
    for &word in code {
        let is_it = |(number, _): &&(usize, Put<'_>)| word == (CALL | (*number as u64) << 32);
        let instead = match put.iter().find(is_it) {
            None => word,
            Some((_, Put::One(instead))) => *instead,
            Some((_, Put::Function(function))) => {
                let to = first + code.len() + behind.len();
                behind.extend(*function);
                own_function(to - filled.len() - 1)
            }
        };
        filled.push(instead);
    }
    filled.extend(behind);
    filled
}

/// A jump over instructions that are never reached.
fn slack() -> Vec<u64> {
    // A conditional jump that is always taken: the verifier finds that, and removes the dead code.
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
        let put = [(0x7EF1, Put::One(constant(-61))), (0x7EF2, Put::One(constant(1)))];
        assert_eq!(filled(&code, &put, false), [code[0], 0xFFFF_FFC3_0000_00B7, code[2]]);
        let bound = filled(&code, &put, true);
        assert_eq!(bound.len(), 1_024 + 5);
        assert_eq!(bound[1] >> 16 & 0xFFFF, 1_024, "the jump lands at the program");
        assert_eq!(bound[1_026..], filled(&code, &put, false));
        assert_eq!(kernel_function(5), 0x0000_0005_0000_2085);
    }

    #[test]
    fn a_function_is_put_behind_the_program_and_called_there() {
        let code =
            [constant(0), CALL | 0x7EF1 << 32, constant(2), CALL | 0x7EF1 << 32, constant(4)];
        let function = [constant(11), constant(12)];
        let put = [(0x7EF1, Put::Function(&function))];
        for bound in [false, true] {
            let filled = filled(&code, &put, bound);
            let (first, end) = (filled.len() - 9, filled.len());
            assert_eq!(filled[end - 4..], [function, function].concat(), "once for each call");
            for (at, to) in [(first + 1, end - 4), (first + 3, end - 2)] {
                assert_eq!(filled[at] & 0xFFFF_FFFF, 0x1085);
                assert_eq!(at + 1 + (filled[at] >> 32) as usize, to);
            }
        }
    }
}
