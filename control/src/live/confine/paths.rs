//! Files: nothing is executed, no device or link is made, and the system's directories are read only.
//!
//! The directories in `/` → rules of Landlock for the calling thread and those it makes.
//!
//! Source: landlock(7), "Filesystem actions" and "Scope flags"; Linux 5.13 or later, what each
//! version lacks is left out.

use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::ConfineError;

/// Directories in `/` in which a switch has nothing to write.
const READ_ONLY: &[&str] =
    &["bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"];

/// The newest version whose rights are asked for; older kernels have fewer.
const VERSION: ABI = ABI::V6;

/// Restricts this thread, and says what is in force.
///
/// # Errors
/// The kernel has Landlock, and refuses all the same.
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
    let mut created = add(created, "/", read)?;
    for entry in std::fs::read_dir("/").into_iter().flatten().flatten() {
        let is_dir = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
        let name = entry.file_name();
        if is_dir && !READ_ONLY.iter().any(|&known| name == known) {
            created = add(created, &entry.path().display().to_string(), all & !never)?;
        }
    }
    created.restrict_self()
}

/// A rule for `path`; none where it cannot be opened, which is the stricter way.
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
