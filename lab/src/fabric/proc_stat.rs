//! Reads `/proc/PID/stat`: whether a process runs, and when it was started.
//!
//! Times are ticks of the machine's clock since it was started.
//!
//! Source: `proc_pid_stat(5)`, fields 3 (state), 20 (threads) and 22 (start time).

/// The fields that are used.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    threads: u64,
    start_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, and may contain any characters; the third one follows the last
        // parenthesis.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let threads = fields.nth(16)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        Some(Self { state, threads, start_ticks })
    }

    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether no thread is left. The first thread stays as a zombie until the last of the others has exited, and then
    /// until its parent waits for it; the thread count includes it.
    const fn has_exited(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// Whether process `pid` has exited, and so has closed all files and sockets: it does not exist, or is a zombie.
#[must_use]
pub fn has_exited(pid: u32) -> bool {
    // No such file means no such process.
    Stat::of(pid).is_none_or(|stat| stat.has_exited())
}

/// Start time of process `pid`. Process ids are reused; together with the start time the id is unique.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.start_ticks)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    fn line(name: &str, state: char, threads: u64) -> String {
        format!(
            "42 ({name}) {state} 1 42 42 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 {threads} 0 7777 8 9\n"
        )
    }

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        #[rustfmt::skip] // columns: name, state, threads, has exited
        let cases = [
            ("weft", 'S', 3, false), ("weft", 'R', 1, false), ("a) Z (b", 'S', 1, false), ("a b c", 'Z', 1, true),
            ("its first thread has exited", 'Z', 2, false), ("its parent is reaping it", 'X', 0, true),
        ];
        for (name, state, threads, exited) in cases {
            let stat = Stat::parse(&line(name, state, threads)).unwrap();
            assert_eq!(stat, Stat { state, threads, start_ticks: 7777 }, "{name}");
            assert_eq!(stat.has_exited(), exited, "{name}");
        }
        let whole = line("weft", 'S', 1);
        for text in ["", "42", "42 (weft)", &whole[..whole.len() - 12]] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_has_exited_before_it_is_waited_for() {
        let own = std::process::id();
        assert!(!has_exited(own) && start_ticks(own).is_some());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!has_exited(child.id()));
        drop(child.stdin.take());
        let pid = Pid::from_child(&child);
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert!(has_exited(child.id()), "a zombie");
        assert!(start_ticks(child.id()).is_some(), "it is in the table of processes still");
        child.wait().unwrap();
        assert!(has_exited(child.id()) && start_ticks(child.id()).is_none());
    }
}
