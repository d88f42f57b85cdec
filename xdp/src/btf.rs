//! Offsets of fields in the running kernel's structs, read from its type information (BTF); and this thread's
//! namespace.
//!
//! Source: Linux `Documentation/bpf/btf.rst`. aya finds types by name but does not show members.

use std::os::unix::fs::MetadataExt;

use crate::layout::Places;

const FILE: &str = "/sys/kernel/btf/vmlinux";
const NAMESPACE: &str = "/proc/thread-self/ns/net";
const HEADER: usize = 24;
const STRUCT: u32 = 4;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn name(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Length in bytes of the data behind a type's three words, by its kind and number of members.
const fn behind(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,                     // integer, variable, declaration tag
        2 | 7..=12 | 16 | 18 => 0, // pointer, forward, typedef, qualifiers, function, float, type tag
        3 => 12,                   // array
        STRUCT | 5 | 15 | 19 => members * 12, // struct, union, data section, 64-bit enum
        6 | 13 => members * 8,     // enum, prototype
        _ => return None,
    })
}

/// Offset in bytes of `member` in struct `of`.
fn find(btf: &[u8], of: &str, member: &str) -> Option<u64> {
    let start = word(btf, 4)? as usize;
    let types = btf.get(start + word(btf, 8)? as usize..)?.get(..word(btf, 12)? as usize)?;
    let strings = btf.get(start + word(btf, 16)? as usize..)?.get(..word(btf, 20)? as usize)?;
    let mut at = 0;
    while let (Some(called), Some(info)) = (word(types, at), word(types, at + 4)) {
        let (kind, members) = (info >> 24 & 0x1F, (info & 0xFFFF) as usize);
        at += 12;
        if kind == STRUCT && name(strings, called) == of.as_bytes() {
            return (0..members).find_map(|n| {
                let found = word(types, at + n * 12)?;
                // The upper 8 bits hold the width of a bit field, and are 0 otherwise.
                let bits = word(types, at + n * 12 + 8)? & 0xFF_FFFF;
                (name(strings, found) == member.as_bytes()).then_some(u64::from(bits / 8))
            });
        }
        at += behind(kind, members)?;
    }
    None
}

/// Offsets of an interface's index and namespace, and the namespace of this thread; `None` if the kernel has no BTF.
pub(crate) fn places() -> Option<Places> {
    let btf = std::fs::read(FILE).ok().filter(|btf| btf.len() > HEADER)?;
    Some(Places {
        ifindex: find(&btf, "net_device", "ifindex")?,
        net: find(&btf, "net_device", "nd_net")?,
        inum: find(&btf, "net", "ns")? + find(&btf, "ns_common", "inum")?,
        ours: std::fs::metadata(NAMESPACE).ok()?.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information of two structs, with every kind of type before them.
    fn sample() -> Vec<u8> {
        let strings = b"\0alpha\0net_device\0ifindex\0";
        let (alpha, device, ifindex) = (1_u32, 7_u32, 18_u32);
        let mut types: Vec<u32> = Vec::new();
        let mut put = |words: &[u32]| types.extend(words);
        put(&[0, 1 << 24, 4, 0x20]); // integer
        put(&[0, 2 << 24, 1]); // pointer
        put(&[0, 3 << 24, 0, 1, 1, 8]); // array
        put(&[alpha, 6 << 24 | 2, 4, 0, 0, 0, 1]); // enum
        put(&[alpha, 13 << 24 | 1, 1, 0, 1]); // prototype
        put(&[alpha, STRUCT << 24 | 1, 4, ifindex, 1, 0]); // another struct
        put(&[device, STRUCT << 24 | 2, 300, alpha, 1, 0, ifindex, 1, 216 * 8]);
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let sizes = [types.len(), strings.len()].map(|len| u32::try_from(len).unwrap());
        let head = [0x0001_EB9F, 24, 0, sizes[0], sizes[0], sizes[1]];
        let mut all: Vec<u8> = head.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        all.extend(types);
        all.extend(strings);
        all
    }

    #[test]
    fn members_are_found_by_name_and_nothing_else_is() {
        let btf = sample();
        assert_eq!(find(&btf, "net_device", "ifindex"), Some(216));
        assert_eq!(find(&btf, "alpha", "ifindex"), Some(0));
        assert_eq!(find(&btf, "net_device", "mtu"), None);
        assert_eq!(find(&btf, "beta", "ifindex"), None);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let btf = sample();
        for len in 0..btf.len() - 1 {
            let found = find(&btf[..len], "net_device", "ifindex");
            assert!(found.is_none() || found == Some(216), "{len}: {found:?}");
        }
    }
}
