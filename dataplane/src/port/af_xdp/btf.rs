//! The number of a kernel function, for programs that call it.
//!
//! Shape: the kernel's BTF, types one after the other, read through once.
//! Units: bytes; types are numbered from 1.
//! Source: Linux `Documentation/bpf/btf.rst`. By hand: aya-obj takes all 100,000 types apart for one.

use std::sync::OnceLock;

/// Where the kernel shows its own types.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xEB9F;
const TYPE_LEN: usize = 12;
const KIND_FUNC: u32 = 12;

/// `bpf_xdp_metadata_rx_vlan_tag`, which Linux has from 6.8 on.
pub(super) fn rx_vlan_tag() -> Option<u32> {
    static FOUND: OnceLock<Option<u32>> = OnceLock::new();
    *FOUND.get_or_init(|| function(&std::fs::read(KERNEL).ok()?, b"bpf_xdp_metadata_rx_vlan_tag"))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Bytes after a type of this kind that has `count` members.
const fn rest_len(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,              // integer, variable, tag of a declaration
        3 => 12,                       // array
        4 | 5 | 15 | 19 => count * 12, // struct, union, section, 64-bit enumeration
        6 | 13 => count * 8,           // enumeration, parameters
        2 | 7..=12 | 16 | 18 => 0,     // pointer, names, qualifiers, function, float, tag
        _ => return None,
    })
}

/// The number of the function called `name`.
fn function(btf: &[u8], name: &[u8]) -> Option<u32> {
    if u16::from_ne_bytes(*btf.first_chunk()?) != MAGIC {
        return None;
    }
    let part = |at: usize| {
        let from = word(btf, 4)? as usize + word(btf, at)? as usize;
        btf.get(from..)?.get(..word(btf, at + 4)? as usize)
    };
    let (mut types, names) = (part(8)?, part(16)?);
    let mut id = 0;
    while let (Some(name_at), Some(info)) = (word(types, 0), word(types, 4)) {
        id += 1;
        let kind = info >> 24 & 0x1F;
        let rest = names.get(name_at as usize..).and_then(|n| n.strip_prefix(name));
        if kind == KIND_FUNC && rest.is_some_and(|rest| rest.first() == Some(&0)) {
            return Some(id);
        }
        types = types.get(TYPE_LEN + rest_len(kind, (info & 0xFFFF) as usize)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF of these types: kind, members, name; what follows a type is filled with 0xFF.
    fn btf(types: &[(u32, u32, &str)]) -> Vec<u8> {
        let (mut body, mut names) = (Vec::new(), vec![0]);
        for &(kind, count, name) in types {
            let at = u32::try_from(names.len()).unwrap();
            names.extend(name.bytes().chain([0]));
            for word in [at, kind << 24 | count, 0] {
                body.extend(word.to_ne_bytes());
            }
            body.resize(body.len() + rest_len(kind, count as usize).unwrap(), 0xFF);
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

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let bytes = btf(&[
            (1, 0, "int"),
            (12, 0, "other"),
            (4, 3, "tag"),
            (13, 2, ""),
            (12, 0, "tag_of"),
            (6, 4, "tag"),
            (12, 0, "tag"),
            (12, 0, "tag"),
        ]);
        assert_eq!(function(&bytes, b"tag"), Some(7), "not the struct, nor the longer name");
        assert_eq!(function(&bytes, b"tag_of"), Some(5));
        assert_eq!(function(&bytes, b"ta"), None);
        for len in 0..bytes.len() {
            let found = function(&bytes[..len], b"missing");
            assert_eq!(found, None, "cut to {len}");
        }
        assert_eq!(function(&[0; 64], b"tag"), None);
    }

    #[test]
    #[cfg(not(miri))]
    fn the_running_kernel_is_understood() {
        let Ok(bytes) = std::fs::read(KERNEL) else {
            eprintln!("SKIPPED the_running_kernel_is_understood: no {KERNEL}");
            return;
        };
        assert!(function(&bytes, b"bpf_xdp_adjust_meta").is_some());
        assert_eq!(function(&bytes, b"there_is_no_such_function"), None);
    }
}
