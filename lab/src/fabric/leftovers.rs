//! Leftovers of a fabric of processes that was killed: veth pairs with its mark, and sockets.
//!
//! [`pair_alias`] marks each pair; [`stale_pairs`] finds the pairs whose maker is gone. Processes leave nothing behind,
//! because each one ends with its parent ([`end_with_parent`]).
//!
//! Source: proc(5) (start time), ip-link(8) (alias), `PR_SET_PDEATHSIG(2const)`.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::Deserialize;

use super::proc_stat::start_ticks;

/// Variable with the process id of the parent that a process must end with.
pub const PARENT: &str = "WEFT_PARENT";

/// An interface in the output of `ip -j link`.
#[derive(Debug, Deserialize)]
struct Interface {
    ifname: String,
    #[serde(default)]
    ifalias: String,
}

/// Origin of an interface, by its alias.
#[derive(Debug, PartialEq, Eq)]
enum Maker {
    /// A `weft fabric up` that is gone.
    Gone,
    /// A running `weft fabric up`, by process id.
    Runs(u32),
    /// Not made by `weft fabric up`.
    Other,
}

/// Alias for the pairs that this process makes.
#[must_use]
pub fn pair_alias() -> String {
    let pid = std::process::id();
    format!("weft fabric up, process {pid}, started {}", start_ticks(pid).unwrap_or(0))
}

fn maker(alias: &str) -> Maker {
    let read = || {
        let (pid, at) = alias.strip_prefix("weft fabric up, process ")?.split_once(", started ")?;
        Some((pid.parse::<u32>().ok()?, at.parse::<u64>().ok()?))
    };
    match read() {
        Some((pid, at)) if start_ticks(pid) == Some(at) => Maker::Runs(pid),
        Some(_) => Maker::Gone,
        None => Maker::Other,
    }
}

/// Picks the interfaces out of `listed` (the output of `ip -j link`) that a dead fabric with this prefix has left.
///
/// # Errors
/// A running process owns an interface with this prefix, or one has no mark.
pub fn stale_pairs(listed: &[u8], prefix: &str) -> Result<Vec<String>, String> {
    let all: Vec<Interface> = serde_json::from_slice(listed)
        .map_err(|error| format!("the answer of ip -j link is not understood: {error}"))?;
    let mut gone = Vec::new();
    for Interface { ifname, ifalias } in all {
        // Names of ends are PREFIX, number and `a` or `b` (`Processes::device`); others are not touched.
        let number = ifname.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(['a', 'b']));
        if !number.is_some_and(|text| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()))
        {
            continue;
        }
        match maker(&ifalias) {
            Maker::Gone => gone.push(ifname),
            Maker::Runs(pid) => {
                return Err(format!(
                    "{ifname} belongs to a running fabric, process {pid}: choose another --prefix"
                ));
            }
            // Far ends have no mark, and go with the near ones.
            Maker::Other if ifname.ends_with('b') => {}
            Maker::Other => {
                return Err(format!(
                    "{ifname} exists, and was not made by weft fabric up: choose another --prefix"
                ));
            }
        }
    }
    Ok(gone)
}

/// Removes a socket without a listener.
pub fn remove_stale(socket: &Path) {
    let is_socket = socket.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(socket).is_err() {
        let _ = std::fs::remove_file(socket); // another process may have removed it
    }
}

/// Makes this process end with the one that `WEFT_PARENT` names, however that ends; fails if that is gone already. The
/// kernel ends it with the *thread* that started it, which is the main thread and lives as long as its process.
///
/// # Errors
/// The kernel refuses, or the parent is gone.
pub fn end_with_parent() -> std::io::Result<()> {
    let Some(parent) = std::env::var_os(PARENT) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call above, and then no signal comes.
    let is_there =
        getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| *pid.to_string() == *parent);
    if is_there {
        Ok(())
    } else {
        Err(std::io::Error::other("the fabric that started this process is gone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_from_what_is_in_use() {
        let own = pair_alias();
        assert_eq!(maker(&own), Maker::Runs(std::process::id()));
        let dead = own.replace(", started ", ", started 1");
        let row =
            |name: &str, alias: &str| format!("{{\"ifname\":{name:?},\"ifalias\":{alias:?}}}");
        let list =
            |rows: &[String]| format!("[{{\"ifname\":\"lo\"}},{}]", rows.join(",")).into_bytes();
        #[rustfmt::skip] // columns: name, alias, left or why not
        let cases = [
            ("wf0a", dead.as_str(), Ok(vec!["wf0a".to_owned()])), ("wf12a", &dead, Ok(vec!["wf12a".to_owned()])),
            ("wf0b", "", Ok(vec![])), ("wfa", &dead, Ok(vec![])), ("wf1xa", &dead, Ok(vec![])), ("xwf1a", &own, Ok(vec![])),
            ("wf0a", &own, Err("a running fabric")), ("wf0a", "", Err("not made by weft fabric up")),
            ("wf3a", "weft fabric up, process x, started 1", Err("not made by weft fabric up")),
        ];
        for (name, alias, want) in cases {
            match (stale_pairs(&list(&[row(name, alias)]), "wf"), want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{name} {alias}"),
                (Err(why), Err(part)) => assert!(why.contains(part) && why.contains(name), "{why}"),
                (found, _) => panic!("{name} {alias}: {found:?}"),
            }
        }
    }
}
