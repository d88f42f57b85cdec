//! The running kernel's BTF: numbers of functions that a program calls, and offsets of fields that it reads.
//!
//! The kernel's types lie one after the other and are parsed once, at the first question. A module's types continue the
//! kernel's numbering of types and names.
//!
//! Source: Linux `Documentation/bpf/btf.rst`. Parsed by hand: aya-obj takes all 100,000 types apart for one, and shows
//! no members.

use std::sync::OnceLock;

/// Where the kernel shows its own types, and those of the veth module unless veth is built in.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const VETH: &str = "/sys/kernel/btf/veth";
const MAGIC: u16 = 0xEB9F;
const TYPE_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const KIND_FUNC: u32 = 12;
/// Nesting of anonymous structs that is followed at most.
const DEPTH_MAX: usize = 6;

/// BTF number of `bpf_xdp_metadata_rx_vlan_tag`; Linux has it from 6.8 on.
pub(super) fn rx_vlan_tag() -> Option<u32> {
    kernel().vlan_tag
}

/// Where a program on a veth finds the state of a frame's checksum; Linux has it from 6.3 on.
pub(super) fn buffer_places() -> Option<&'static BufferPlaces> {
    kernel().buffer.as_ref()
}

/// Answers read from the kernel's BTF, once per process.
#[derive(Default)]
struct Kernel {
    vlan_tag: Option<u32>,
    buffer: Option<BufferPlaces>,
}

fn kernel() -> &'static Kernel {
    static FOUND: OnceLock<Kernel> = OnceLock::new();
    FOUND.get_or_init(|| {
        let Ok(bytes) = std::fs::read(KERNEL) else { return Kernel::default() };
        let Some(own) = Types::parse(&bytes, None) else { return Kernel::default() };
        let veth = std::fs::read(VETH).ok();
        let module = veth.as_deref().and_then(|bytes| Types::parse(bytes, Some(&own)));
        Kernel {
            vlan_tag: own.function("bpf_xdp_metadata_rx_vlan_tag"),
            buffer: BufferPlaces::find(&own, module.as_ref().unwrap_or(&own)),
        }
    })
}

/// BTF numbers and byte offsets by which a program gets from its context to the sender's buffer (`struct sk_buff`) and
/// to the fields of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlaces {
    /// Function `bpf_cast_to_kern_ctx`.
    pub(super) to_kernel: u32,
    /// Function `bpf_rdonly_cast`.
    pub(super) read_only: u32,
    /// Type `struct sk_buff_head`, whose first member is a pointer to a buffer.
    pub(super) pointer: u32,
    /// Offset of the frame's start in the program's context.
    pub(super) data: u16,
    /// Offset of veth's pointer to the buffer, behind the part of the context that all drivers have.
    pub(super) buffer: u16,
    /// Offset in a buffer of the byte with `ip_summed`, and that field's lowest bit in the byte.
    pub(super) state: (u16, u16),
    pub(super) head: u16,
    pub(super) csum_start: u16,
    pub(super) csum_offset: u16,
}

impl BufferPlaces {
    /// `veth` has the types of veth's driver: the kernel's own if it is built in, else the module's.
    fn find(own: &Types<'_>, veth: &Types<'_>) -> Option<Self> {
        let place = |types: &Types<'_>, of: &str, name: &str| {
            let found = types.member(types.structure(of)?.1, name, 0)?;
            // Programs load whole bytes; a bit field would need a mask.
            (found.bit % 8 == 0).then(|| u16::try_from(found.bit / 8).ok())?
        };
        let state = own.member(own.structure("sk_buff")?.1, "ip_summed", 0)?;
        // `ip_summed` is a 2-bit field (CHECKSUM_PARTIAL is 3) and is read with one byte load, so it must not cross
        // bytes.
        if state.bits != 2 || state.bit % 8 > 6 || cfg!(target_endian = "big") {
            return None; // not the field that is meant
        }
        // The program casts between these by address, which only holds while both members come first.
        let context = place(veth, "veth_xdp_buff", "xdp")?;
        let first = place(own, "sk_buff_head", "next")?;
        (context == 0 && first == 0).then_some(())?;
        Some(Self {
            to_kernel: own.function("bpf_cast_to_kern_ctx")?,
            read_only: own.function("bpf_rdonly_cast")?,
            pointer: own.structure("sk_buff_head")?.0,
            data: place(own, "xdp_buff", "data")?,
            buffer: place(veth, "veth_xdp_buff", "skb")?,
            state: (u16::try_from(state.bit / 8).ok()?, u16::try_from(state.bit % 8).ok()?),
            head: place(own, "sk_buff", "head")?,
            csum_start: place(own, "sk_buff", "csum_start")?,
            csum_offset: place(own, "sk_buff", "csum_offset")?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Length in bytes of the data behind a type's fixed part, for a kind with `count` members.
const fn rest_len(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4, // integer, variable, tag of a declaration
        3 => 12,          // array
        STRUCT | UNION | 15 | 19 => count * MEMBER_LEN, // and section, 64-bit enumeration
        6 | 13 => count * 8, // enumeration, parameters
        2 | 7..=12 | 16 | 18 => 0, // pointer, names, qualifiers, function, float, tag
        _ => return None,
    })
}

/// A parsed type.
#[derive(Clone, Copy)]
struct Type<'a> {
    kind: u32,
    name: u32,
    /// The offsets of its members also hold the widths of bit fields (`kind_flag`).
    has_bits: bool,
    members: &'a [u8],
}

/// Where a member is: bits from the start of its struct, and its width in bits, 0 unless it is a bit field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    bit: u32,
    bits: u32,
}

/// Types of a kernel, or of a module, whose `base` are the kernel's.
struct Types<'a> {
    base: Option<&'a Types<'a>>,
    all: Vec<Type<'a>>,
    names: &'a [u8],
}

impl<'a> Types<'a> {
    fn parse(btf: &'a [u8], base: Option<&'a Self>) -> Option<Self> {
        if u16::from_ne_bytes(*btf.first_chunk()?) != MAGIC {
            return None;
        }
        let part = |at: usize| {
            let from = word(btf, 4)? as usize + word(btf, at)? as usize;
            btf.get(from..)?.get(..word(btf, at + 4)? as usize)
        };
        let (mut rest, names) = (part(8)?, part(16)?);
        let mut all = Vec::new();
        while let (Some(name), Some(info)) = (word(rest, 0), word(rest, 4)) {
            let kind = info >> 24 & 0x1F;
            let len = rest_len(kind, (info & 0xFFFF) as usize)?;
            let members = rest.get(TYPE_LEN..)?.get(..len)?;
            all.push(Type { kind, name, has_bits: info >> 31 != 0, members });
            rest = rest.get(TYPE_LEN + len..)?;
        }
        Some(Self { base, all, names })
    }

    /// Lengths of the base: bytes of names, and types.
    fn before(&self) -> (usize, usize) {
        self.base.map_or((0, 0), |base| (base.names.len(), base.all.len()))
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let (names, _) = self.before();
        // A module continues the kernel's string section: an offset within the base names one of the base's strings.
        let (at, names) = match ((name as usize).checked_sub(names), self.base) {
            (None, Some(base)) => (name as usize, base.names),
            (at, _) => (at.unwrap_or(usize::MAX), self.names),
        };
        let rest = names.get(at..).and_then(|rest| rest.strip_prefix(wanted.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    fn get(&self, number: u32) -> Option<Type<'a>> {
        let (_, before) = self.before();
        // Type 0 is `void` and is not in the list.
        let index = (number as usize).checked_sub(1)?;
        match (index.checked_sub(before), self.base) {
            (None, Some(base)) => base.get(number),
            (index, _) => self.all.get(index?).copied(),
        }
    }

    /// The first type of this kind and name, with its number.
    fn find(&self, kind: u32, name: &str) -> Option<(u32, Type<'a>)> {
        let (_, before) = self.before();
        let is_it = |found: &&Type<'_>| found.kind == kind && self.is_called(found.name, name);
        let index = self.all.iter().position(|found| is_it(&found))?;
        let number = u32::try_from(before + index + 1).ok()?;
        Some((number, *self.all.get(index)?))
    }

    fn function(&self, name: &str) -> Option<u32> {
        self.find(KIND_FUNC, name).map(|(number, _)| number)
    }

    fn structure(&self, name: &str) -> Option<(u32, Type<'a>)> {
        self.find(STRUCT, name)
    }

    /// Where a member is; it may lie in an anonymous struct or union inside.
    fn member(&self, of: Type<'_>, name: &str, depth: usize) -> Option<Place> {
        let members = of.members.chunks_exact(MEMBER_LEN);
        members.filter(|_| matches!(of.kind, STRUCT | UNION)).find_map(|member| {
            let (called, number, offset) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
            let (bit, bits) =
                if of.has_bits { (offset & 0xFF_FFFF, offset >> 24) } else { (offset, 0) };
            if self.is_called(called, name) {
                return Some(Place { bit, bits });
            }
            if !self.is_called(called, "") || depth == DEPTH_MAX {
                return None;
            }
            // An anonymous struct's members count as its parent's in C, so their offsets add up.
            let inside = self.member(self.get(number)?, name, depth + 1)?;
            Some(Place { bit: bit + inside.bit, ..inside })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One type: kind, name, members as name, type and offset, whether offsets tell of bit fields.
    type Sample<'a> = (u32, &'a str, &'a [(&'a str, u32, u32)], bool);

    /// A BTF of these types, whose names follow `before` bytes of others. Data behind a type without members is filled
    /// with 0xFF.
    fn btf(types: &[Sample<'_>], before: usize) -> Vec<u8> {
        let (mut body, mut names) = (Vec::new(), if before == 0 { vec![0] } else { Vec::new() });
        let mut named = |name: &str| {
            if name.is_empty() {
                return 0;
            }
            let at = u32::try_from(before + names.len()).unwrap();
            names.extend(name.bytes().chain([0]));
            at
        };
        for &(kind, name, members, has_bits) in types {
            let count = u32::try_from(members.len()).unwrap();
            let info = u32::from(has_bits) << 31 | kind << 24 | count;
            body.extend([named(name), info, 0].into_iter().flat_map(u32::to_ne_bytes));
            if matches!(kind, STRUCT | UNION) {
                for &(name, number, offset) in members {
                    let member = [named(name), number, offset];
                    body.extend(member.into_iter().flat_map(u32::to_ne_bytes));
                }
            } else {
                body.resize(body.len() + rest_len(kind, members.len()).unwrap(), 0xFF);
            }
        }
        let (types_len, names_len) =
            (u32::try_from(body.len()).unwrap(), u32::try_from(names.len()).unwrap());
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types_len, types_len, names_len] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        bytes.extend(names);
        bytes
    }

    const NONE: &[(&str, u32, u32)] = &[];
    const THREE: &[(&str, u32, u32)] = &[("a", 1, 0), ("b", 1, 0), ("c", 1, 0)];

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let bytes = btf(
            &[
                (1, "int", NONE, false),
                (KIND_FUNC, "other", NONE, false),
                (STRUCT, "tag", THREE, false),
                (13, "", &THREE[..2], false),
                (KIND_FUNC, "tag_of", NONE, false),
                (6, "tag", THREE, false),
                (KIND_FUNC, "tag", NONE, false),
                (KIND_FUNC, "tag", NONE, false),
            ],
            0,
        );
        let types = Types::parse(&bytes, None).unwrap();
        assert_eq!(types.function("tag"), Some(7), "not the struct, nor the longer name");
        assert_eq!(types.function("tag_of"), Some(5));
        assert_eq!(types.function("ta"), None);
        for len in 0..bytes.len() {
            let found = Types::parse(&bytes[..len], None).and_then(|t| t.function("missing"));
            assert_eq!(found, None, "cut to {len}");
        }
        assert!(Types::parse(&[0; 64], None).is_none());
    }

    /// BTF of a kernel with those of the wanted types whose names `keep` accepts.
    fn own(keep: impl Fn(&str) -> bool) -> Vec<u8> {
        let all: [Sample<'_>; 8] = [
            (1, "int", NONE, false),
            (UNION, "", &[("csum", 1, 0), ("", 3, 0)], false),
            (STRUCT, "", &[("csum_start", 1, 0), ("csum_offset", 1, 16)], false),
            (
                STRUCT,
                "sk_buff",
                &[("ip_summed", 1, (2 << 24) + 1_029), ("", 2, 1_088), ("head", 1, 1_536)],
                true,
            ),
            (STRUCT, "sk_buff_head", &[("next", 1, 0)], false),
            (STRUCT, "xdp_buff", &[("data", 1, 64)], false),
            (KIND_FUNC, "bpf_cast_to_kern_ctx", NONE, false),
            (KIND_FUNC, "bpf_rdonly_cast", NONE, false),
        ];
        // Those that are left out keep their numbers.
        let kept = all.map(|sample| if keep(sample.1) { sample } else { (1, "int", NONE, false) });
        btf(&kept, 0)
    }

    const PLACES: BufferPlaces = BufferPlaces {
        to_kernel: 7,
        read_only: 8,
        pointer: 5,
        data: 8,
        buffer: 56,
        state: (128, 5),
        head: 192,
        csum_start: 136,
        csum_offset: 138,
    };

    #[test]
    fn places_are_found_in_a_module_behind_its_kernel_and_only_if_all_are_there() {
        let bytes = own(|_| true);
        let kernel = Types::parse(&bytes, None).unwrap();
        let members: &[(&str, u32, u32)] = &[("xdp", 6, 0), ("skb", 2, 448)];
        let veth: [Sample<'_>; 1] = [(STRUCT, "veth_xdp_buff", members, false)];
        let module = btf(&veth, kernel.names.len());
        let module = Types::parse(&module, Some(&kernel)).unwrap();
        assert_eq!(module.structure("veth_xdp_buff").map(|(number, _)| number), Some(9));
        assert_eq!(BufferPlaces::find(&kernel, &module), Some(PLACES));
        assert_eq!(BufferPlaces::find(&kernel, &kernel), None, "no veth");
        for missing in
            ["sk_buff", "sk_buff_head", "xdp_buff", "bpf_cast_to_kern_ctx", "bpf_rdonly_cast"]
        {
            let bytes = own(|name| name != missing);
            let kernel = Types::parse(&bytes, None).unwrap();
            let module = btf(&veth, kernel.names.len());
            let module = Types::parse(&module, Some(&kernel)).unwrap();
            assert_eq!(BufferPlaces::find(&kernel, &module), None, "without {missing}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn the_running_kernel_is_understood() {
        let Ok(bytes) = std::fs::read(KERNEL) else {
            eprintln!("SKIPPED the_running_kernel_is_understood: no {KERNEL}");
            return;
        };
        let types = Types::parse(&bytes, None).unwrap();
        assert!(types.function("bpf_xdp_adjust_meta").is_some());
        assert_eq!(types.function("there_is_no_such_function"), None);
        let start = types.member(types.structure("sk_buff").unwrap().1, "csum_start", 0).unwrap();
        let offset = types.member(types.structure("sk_buff").unwrap().1, "csum_offset", 0).unwrap();
        assert_eq!(offset.bit, start.bit + 16, "one after the other");
    }
}
