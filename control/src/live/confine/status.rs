//! State of the process's threads, as the kernel reports it.
//!
//! `/proc/self/task/*/status` → [`ProcessReport`].
//!
//! Source: `proc_pid_status(5)`.

use std::io;

use crate::report::process::ProcessReport;

/// Names of capabilities by number; later ones are shown as numbers.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// Rights of one thread, to be compared between threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Thread {
    name: String,
    uid: u32,
    gid: u32,
    effective: u64,
    permitted: u64,
    bounding: u64,
    no_new_privs: bool,
    seccomp: u8,
}

impl Thread {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim()
        };
        let first = |name| {
            let text: &str = field(name);
            text.split_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
        };
        // A field that is missing counts as all rights: a report must not look safer than the process is.
        let mask = |name| u64::from_str_radix(field(name), 16).unwrap_or(u64::MAX);
        Self {
            name: field("Name").to_owned(),
            uid: first("Uid"), // the second is the effective one
            gid: first("Gid"),
            effective: mask("CapEff"),
            permitted: mask("CapPrm"),
            bounding: mask("CapBnd"),
            no_new_privs: field("NoNewPrivs") == "1",
            seccomp: field("Seccomp").parse().unwrap_or(0),
        }
    }

    /// Whether another thread has the same rights.
    fn is_like(&self, other: &Self) -> bool {
        let name = self.name.clone();
        *self == Self { name, ..other.clone() }
    }
}

fn names(mask: u64) -> Vec<String> {
    let name = |bit: usize| NAMES.get(bit).map_or_else(|| bit.to_string(), |&n| n.to_owned());
    (0..64).filter(|bit| mask >> bit & 1 == 1).map(name).collect()
}

/// Status of each thread, the first thread's first.
pub(super) fn threads() -> io::Result<Vec<String>> {
    let mut ids: Vec<u32> = std::fs::read_dir("/proc/self/task")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    let text = |id: &u32| std::fs::read_to_string(format!("/proc/self/task/{id}/status"));
    Ok(ids.iter().filter_map(|id| text(id).ok()).collect()) // one that has ended meanwhile has none
}

pub(super) fn report() -> io::Result<ProcessReport> {
    let threads: Vec<Thread> = threads()?.iter().map(|text| Thread::parse(text)).collect();
    let Some(first) = threads.first() else {
        return Err(io::Error::other("/proc/self/task has no thread"));
    };
    // Threads with other rights than the first are named: they were made before the process was confined, or changed
    // since.
    let unlike = threads.iter().filter(|thread| !thread.is_like(first));
    Ok(ProcessReport {
        pid: std::process::id(),
        uid: first.uid,
        gid: first.gid,
        threads: threads.len(),
        effective: names(first.effective),
        permitted: names(first.permitted),
        bounding: names(first.bounding),
        no_new_privs: first.no_new_privs,
        seccomp: match first.seccomp {
            0 => "none",
            2 => "filter",
            _ => "strict",
        }
        .to_owned(),
        unlike: unlike.map(|thread| thread.name.clone()).collect(),
        ..ProcessReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_field_by_field() {
        let text = "Name:\tweft-worker0\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
                    CapPrm:\t000000c000007000\nCapEff:\t0000000000001000\nCapBnd:\t0000000000000000\n\
                    NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";
        let thread = Thread::parse(text);
        let permitted = ["net_admin", "net_raw", "ipc_lock", "perfmon", "bpf"];
        assert_eq!(names(thread.permitted), permitted);
        assert_eq!(names(thread.effective), ["net_admin"]);
        assert_eq!((thread.bounding, thread.uid, thread.gid), (0, 2, 6));
        assert!(thread.no_new_privs && thread.seccomp == 2);
        let other = Thread::parse(&text.replace("weft-worker0", "x"));
        assert!(thread.is_like(&other));
        assert!(!thread.is_like(&Thread::parse(&text.replace("Seccomp:\t2", "Seccomp:\t0"))));
        assert_eq!(names(1 << 60), ["60"]);
    }

    #[test]
    fn this_process_has_a_report() {
        let report = report().unwrap();
        assert_eq!((report.pid, report.threads >= 1), (std::process::id(), true));
    }
}
