//! Instructions of eBPF, for programs that are written without a compiler.
//!
//! [`op`] packs one instruction into a word.
//!
//! Source: RFC 9669; Linux `include/uapi/linux/bpf.h`.

pub(in crate::port) const CALL: u8 = 0x85;
pub(in crate::port) const EXIT: u8 = 0x95;
pub(in crate::port) const MOV: u8 = 0xB7;
pub(in crate::port) const MOV_REG: u8 = 0xBF;
pub(in crate::port) const ADD: u8 = 0x07;
pub(in crate::port) const ADD_REG: u8 = 0x0F;
pub(in crate::port) const SUB_REG: u8 = 0x1F;
pub(in crate::port) const OR: u8 = 0x47;
pub(in crate::port) const OR_REG: u8 = 0x4F;
pub(in crate::port) const AND: u8 = 0x57;
pub(in crate::port) const SHIFT_LEFT: u8 = 0x67;
pub(in crate::port) const JEQ: u8 = 0x15;
pub(in crate::port) const JNE: u8 = 0x55;
pub(in crate::port) const JGT_REG: u8 = 0x2D;
pub(in crate::port) const LOAD_IMM64: u8 = 0x18;
pub(in crate::port) const LOAD8: u8 = 0x71;
pub(in crate::port) const LOAD16: u8 = 0x69;
pub(in crate::port) const LOAD32: u8 = 0x61;
pub(in crate::port) const LOAD64: u8 = 0x79;
pub(in crate::port) const STORE32_REG: u8 = 0x63;
pub(in crate::port) const STORE64: u8 = 0x7A;
/// Values of the source register that change an instruction's meaning: the constant of a load is a map's descriptor.
pub(in crate::port) const MAP_FD: u8 = 1;
/// The constant of a load is a map's descriptor, and the result the address of its first value.
pub(in crate::port) const MAP_VALUE: u8 = 2;
/// The constant of a call is the distance to a function of the same program.
pub(in crate::port) const OWN_FUNCTION: u8 = 1;
/// The constant of a call is the BTF number of a kernel function.
pub(in crate::port) const KERNEL_FUNCTION: u8 = 2;

/// Packs one instruction: operation, destination and source register, offset, constant.
pub(in crate::port) const fn op(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let registers = (to | from << 4) as u64;
    let (offset, constant) = (offset.cast_unsigned() as u64, constant.cast_unsigned() as u64);
    code as u64 | registers << 8 | offset << 16 | constant << 32
}
