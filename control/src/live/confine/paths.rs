//! Restricts files: nothing is executed, no device or link is made, and the system's directories are read only.
//!
//! The directories in `/` become rules of Landlock for the calling thread and the threads that it makes.
//!
//! Source: landlock(7), "Filesystem actions" and "Scope flags"; Linux 5.13 or later. Rights that an older version lacks
//! are left out.

use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::ConfineError;

/// Directories in `/` that a switch never writes to.
const READ_ONLY: &[&str] =
    &["bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"];

/// The newest version whose rights are asked for; older kernels have fewer.
const VERSION: ABI = ABI::V6;

/// Restricts this thread; returns what is in force, as text for reports.
///
/// # Errors
/// The kernel has Landlock, and refuses the rules all the same.
pub(super) fn restrict() -> Result<String, ConfineError> {
    let status = rules().map_err(|error| ConfineError::Paths(Box::new(error)))?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => "none: the kernel has no Landlock, or it is turned off",
        (RulesetStatus::FullyEnforced, LandlockStatus::Available { .. }) => {
            "nothing is executed, system directories are read only, signals stay inside"
        }
        _ => "nothing is executed, system directories are read only (in part: an older kernel)",
    }
    .to_owned())
}

fn rules() -> Result<landlock::RestrictionStatus, RulesetError> {
    use AccessFs::{Execute, MakeBlock, MakeChar, MakeFifo, MakeSym, ReadDir, ReadFile, Refer};
    let read = ReadFile | ReadDir;
    let never: BitFlags<AccessFs> = Execute | MakeBlock | MakeChar | MakeFifo | MakeSym | Refer;
    let all = <AccessFs as landlock::Access>::from_all(VERSION);
    let created = Ruleset::default().handle_access(all)?.scope(Scope::Signal)?.create()?;
    // `/` itself is read only; the directories in it get their rules one by one, as Landlock adds rights and takes none
    // away.
    let mut created = add(created, "/", read)?;
    for entry in std::fs::read_dir("/").into_iter().flatten().flatten() {
        // Links in `/`, such as `/bin` to `/usr/bin`, count as the directories that they lead to.
        let is_dir = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
        let name = entry.file_name();
        // Any other directory stays writable: sockets, records, captures and mirrors go where the user says.
        if is_dir && !READ_ONLY.iter().any(|&known| name == known) {
            created = add(created, &entry.path().display().to_string(), all & !never)?;
        }
    }
    created.restrict_self()
}

/// Adds a rule for `path`. A path that cannot be opened gets no rule, which is the stricter way.
fn add(
    created: landlock::RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(fd) => created.add_rule(PathBeneath::new(fd, access)),
        Err(_) => Ok(created),
    }
}
