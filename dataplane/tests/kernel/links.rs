//! Links of XDP programs as somebody else sees them: found by interface, and taken away.
//!
//! What `bpftool link` does, for tests of several crates.
//!
//! Source: bpf(2); Linux `include/uapi/linux/bpf.h` (`bpf_link_info`).

/// A command of bpf(2) with a few 32-bit words; the words as the kernel leaves them.
fn bpf(command: i32, words: [u32; 4]) -> Result<(i64, [u32; 4]), std::io::Error> {
    let mut words = words;
    // SAFETY: none of the commands used here takes a pointer in these words, but for `link_info`,
    // which answers for it; the kernel writes within them.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), 16) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok((done, words)) }
}

/// Detaches all links of XDP programs from an interface of the thread's namespace, as `bpftool link
/// detach` does; how many there were.
pub fn detach(device: &str) -> usize {
    const OBJ_GET_INFO: i32 = 15;
    const LINK_GET_FD: i32 = 30;
    const LINK_GET_NEXT: i32 = 31;
    const LINK_DETACH: i32 = 34;
    let index = index(device);
    let (mut id, mut count) = (0, 0);
    while let Ok((_, words)) = bpf(LINK_GET_NEXT, [id, 0, 0, 0]) {
        id = words[1];
        let Ok((fd, _)) = bpf(LINK_GET_FD, [id, 0, 0, 0]) else { continue };
        let fd = u32::try_from(fd).unwrap();
        // bpf_link_info: type (6 is XDP), id, program, then the interface.
        let mut info = [0_u32; 8];
        let at = (&raw mut info) as u64;
        let (low, high) =
            (u32::try_from(at & 0xFFFF_FFFF).unwrap(), u32::try_from(at >> 32).unwrap());
        bpf(OBJ_GET_INFO, [fd, 32, low, high]).unwrap();
        if info[0] == 6 && info[4] == index {
            bpf(LINK_DETACH, [fd, 0, 0, 0]).unwrap();
            count += 1;
        }
        // SAFETY: ours, and used no more.
        unsafe { libc::close(fd.cast_signed()) };
    }
    count
}

/// Number of an interface of the thread's namespace; 0 if there is none.
pub fn index(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: a terminated string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}
