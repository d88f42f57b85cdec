//! Exit codes of the process: those of commands, and those by which a running switch ends itself.
//!
//! Source: `weft --help`, which lists them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done; comparisons found no difference, and checks passed.
    Ok = 0,
    /// A comparison or check failed.
    Difference = 1,
    /// The command line or a configuration is wrong.
    Usage = 2,
    /// A file, device or system call failed.
    System = 3,
    /// No switch answered, or it refused the request.
    Switch = 4,
    /// The stop took too long, or not all workers stopped.
    Late = 5,
    /// A thread made a system call that the filter refuses.
    Refused = 7,
}
