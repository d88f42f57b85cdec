//! eBPF instructions, by hand: as much of the instruction set as the kit's programs need.
//!
//! [`Asm`] grows a list of [`Insn`]; a jump is [`Asm::jump`]ed before its target is known and
//! [`Asm::land`]ed where it is.
//!
//! Units: 8 bytes an instruction; offsets of jumps in instructions, of loads in bytes.
//! Source: RFC 9669 (BPF instruction set); Linux `include/uapi/linux/bpf.h`. Little-endian hosts.

/// One instruction as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    opcode: u8,
    /// Destination in the low four bits, source in the high ones.
    regs: u8,
    offset: i16,
    imm: i32,
}

/// A register: `R0` is a result, `R1` to `R5` are arguments, `R6` to `R9` outlive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    Word = 0x00,
    Half = 0x08,
    Double = 0x18,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    Add = 0x00,
    Sub = 0x10,
    ShiftLeft = 0x60,
    Modulo = 0x90,
    Move = 0xb0,
}

/// Condition of a jump, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum If {
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    NotEqual = 0x50,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_ktime_get_ns`, of `CLOCK_MONOTONIC`.
    KtimeGetNs = 5,
    /// `bpf_redirect`: to an interface.
    Redirect = 23,
    /// `bpf_redirect_map`: to an entry of a map of interfaces.
    RedirectMap = 51,
}

/// A jump whose target is still to come.
#[derive(Debug)]
#[must_use]
pub struct Jump(usize);

const CLASS_LOAD: u8 = 0x00;
const CLASS_LOAD_REG: u8 = 0x01;
const CLASS_STORE_REG: u8 = 0x03;
const CLASS_JUMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const CLASS_ALU32: u8 = 0x04;
const FROM_REG: u8 = 0x08;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
const WIDTH_DOUBLE: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = 0xd8;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const ATOMIC_FETCH: i32 = 0x01;
/// The immediate names a map by its descriptor.
const PSEUDO_MAP: u8 = 1;
/// The immediate names the memory of an array map by its descriptor.
const PSEUDO_MAP_VALUE: u8 = 2;

/// A program that grows.
#[derive(Clone, Debug, Default)]
pub struct Asm {
    insns: Vec<Insn>,
}

impl Asm {
    fn push(&mut self, opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> &mut Self {
        self.insns.push(Insn { opcode, regs: dst | src << 4, offset, imm });
        self
    }

    /// The instructions so far.
    #[must_use]
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// `dst = dst op imm`.
    pub fn op(&mut self, op: Op, dst: Reg, imm: i32) -> &mut Self {
        self.push(CLASS_ALU64 | op as u8, dst as u8, 0, 0, imm)
    }

    /// `dst = dst op src`.
    pub fn op_reg(&mut self, op: Op, dst: Reg, src: Reg) -> &mut Self {
        self.push(CLASS_ALU64 | FROM_REG | op as u8, dst as u8, src as u8, 0, 0)
    }

    /// `dst = be16(dst)`.
    pub fn to_be16(&mut self, dst: Reg) -> &mut Self {
        self.push(CLASS_ALU32 | TO_BIG_ENDIAN, dst as u8, 0, 0, 16)
    }

    /// `dst = *(src + offset)`.
    pub fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) -> &mut Self {
        self.push(CLASS_LOAD_REG | MODE_MEM | width as u8, dst as u8, src as u8, offset, 0)
    }

    /// `*(dst + offset) = src`.
    pub fn store(&mut self, width: Width, dst: Reg, offset: i16, src: Reg) -> &mut Self {
        self.push(CLASS_STORE_REG | MODE_MEM | width as u8, dst as u8, src as u8, offset, 0)
    }

    /// Adds `src` to the 64 bits at `dst + offset`, atomically; `src` becomes the old value.
    pub fn fetch_add(&mut self, dst: Reg, offset: i16, src: Reg) -> &mut Self {
        let opcode = CLASS_STORE_REG | MODE_ATOMIC | WIDTH_DOUBLE;
        self.push(opcode, dst as u8, src as u8, offset, ATOMIC_FETCH)
    }

    fn wide(&mut self, dst: Reg, src: u8, [low, high]: [i32; 2]) -> &mut Self {
        // a 64-bit immediate takes two instructions; the second has the upper half alone
        self.push(CLASS_LOAD | WIDTH_DOUBLE, dst as u8, src, 0, low);
        self.push(0, 0, 0, 0, high)
    }

    /// `dst = value`, of 64 bits.
    #[expect(clippy::cast_possible_truncation, reason = "cut in halves")]
    pub fn constant(&mut self, dst: Reg, value: u64) -> &mut Self {
        self.wide(dst, 0, [value as i32, (value >> 32) as i32])
    }

    /// `dst =` the map with descriptor `fd`.
    pub fn map(&mut self, dst: Reg, fd: i32) -> &mut Self {
        self.wide(dst, PSEUDO_MAP, [fd, 0])
    }

    /// `dst =` the memory of the array map with descriptor `fd`, which has one entry.
    pub fn map_memory(&mut self, dst: Reg, fd: i32) -> &mut Self {
        self.wide(dst, PSEUDO_MAP_VALUE, [fd, 0])
    }

    /// Jumps if `left` compares so with `imm`, to the place where it lands.
    pub fn jump(&mut self, when: If, left: Reg, imm: i32) -> Jump {
        self.push(CLASS_JUMP | when as u8, left as u8, 0, 0, imm);
        Jump(self.insns.len() - 1)
    }

    /// Jumps if `left` compares so with `right`, to the place where it lands.
    pub fn jump_reg(&mut self, when: If, left: Reg, right: Reg) -> Jump {
        self.push(CLASS_JUMP | FROM_REG | when as u8, left as u8, right as u8, 0, 0);
        Jump(self.insns.len() - 1)
    }

    /// The next instruction is the target of `jump`.
    ///
    /// # Panics
    /// When it is further away than a jump can reach.
    #[expect(clippy::needless_pass_by_value, reason = "a jump lands once")]
    pub fn land(&mut self, jump: Jump) -> &mut Self {
        // offsets count from the instruction behind the jump (RFC 9669, section 4.3)
        let over = self.insns.len() - jump.0 - 1;
        if let Some(insn) = self.insns.get_mut(jump.0) {
            insn.offset = i16::try_from(over).expect("programs of the kit are short");
        }
        self
    }

    /// Calls a function of the kernel: `R0` is its result, `R1` to `R5` are lost.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(CLASS_JUMP | CALL, 0, 0, 0, helper as i32)
    }

    pub fn exit(&mut self) -> &mut Self {
        self.push(CLASS_JUMP | EXIT, 0, 0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Build = dyn Fn(&mut Asm);

    /// Bytes of instructions, as RFC 9669 lays them out and `bpftool` prints them.
    #[test]
    fn instructions_have_their_bytes() {
        let bytes = |insn: &Insn| {
            let mut bytes = vec![insn.opcode, insn.regs];
            bytes.extend(insn.offset.to_le_bytes());
            bytes.extend(insn.imm.to_le_bytes());
            bytes
        };
        #[rustfmt::skip] // columns: name, what, bytes
        let cases: [(&str, &Build, &[u8]); 9] = [
            ("r0 = 2", &|a| { a.op(Op::Move, Reg::R0, 2); }, &[0xb7, 0, 0, 0, 2, 0, 0, 0]),
            ("r3 %= r4", &|a| { a.op_reg(Op::Modulo, Reg::R3, Reg::R4); }, &[0x9f, 0x43, 0, 0, 0, 0, 0, 0]),
            ("r3 = be16 r3", &|a| { a.to_be16(Reg::R3); }, &[0xdc, 3, 0, 0, 16, 0, 0, 0]),
            ("r7 = *(u32 *)(r1 + 4)", &|a| { a.load(Width::Word, Reg::R7, Reg::R1, 4); }, &[0x61, 0x17, 4, 0, 0, 0, 0, 0]),
            ("*(u16 *)(r6 + 34) = r3", &|a| { a.store(Width::Half, Reg::R6, 34, Reg::R3); }, &[0x6b, 0x36, 34, 0, 0, 0, 0, 0]),
            ("r2 = atomic_fetch_add((u64 *)(r8 + 0), r2)", &|a| { a.fetch_add(Reg::R8, 0, Reg::R2); }, &[0xdb, 0x28, 0, 0, 1, 0, 0, 0]),
            ("r1 = map[fd 5][0]", &|a| { a.map_memory(Reg::R1, 5); }, &[0x18, 0x21, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ("call 5", &|a| { a.call(Helper::KtimeGetNs); }, &[0x85, 0, 0, 0, 5, 0, 0, 0]),
            ("exit", &|a| { a.exit(); }, &[0x95, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (name, build, want) in cases {
            let mut asm = Asm::default();
            build(&mut asm);
            let got: Vec<u8> = asm.insns().iter().flat_map(bytes).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn a_jump_lands_behind_what_it_jumps_over() {
        let mut asm = Asm::default();
        let jump = asm.jump_reg(If::Greater, Reg::R2, Reg::R7);
        asm.op(Op::Move, Reg::R0, 1).exit();
        asm.land(jump).op(Op::Move, Reg::R0, 2).exit();
        assert_eq!(asm.insns[0], Insn { opcode: 0x2d, regs: 0x72, offset: 2, imm: 0 });
    }
}
