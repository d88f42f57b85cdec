//! DPDK's environment (EAL), started once per process.
//!
//! Source: DPDK 22.11 `rte_eal.h`; EAL parameters in `doc/guides/linux_gsg/linux_eal_parameters`.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use weft_dpdk_sys as sys;

use super::calls::{errno, listen, strerror};
use super::memory;

/// Why DPDK could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EalError {
    /// This argument would end the process, or contains a zero byte.
    #[error("argument {0:?} cannot be used here")]
    Argument(String),
    /// DPDK was started before with these other arguments.
    #[error("was started with {0:?} before; that is done once a process")]
    Other(Vec<String>),
    /// DPDK refused to start, with these messages.
    #[error("{0}")]
    Refused(String),
}

/// The attempt to start DPDK, and its result.
struct Started {
    args: Vec<String>,
    result: Result<(), EalError>,
}

/// The only attempt: EAL cannot be started again, even after a failure.
static STARTED: Mutex<Option<Started>> = Mutex::new(None);

/// Options that select devices.
const DEVICES: [&str; 5] = ["-a", "--allow", "-b", "--block", "--no-pci"];
/// Options that select cores.
const CORES: [&str; 5] = ["-l", "-c", "--lcores", "--main-lcore", "-S"];
/// An address that no device has. Allowing only this one keeps EAL from taking devices that no port names.
const NO_DEVICE: &str = "0000:00:00.0";

/// Starts DPDK with `args`, once per process. Adds a program name and, unless `args` say otherwise, one core (`-l`;
/// workers are weft's own threads) and `-a 0000:00:00.0`.
///
/// # Errors
/// See [`EalError`].
pub fn start(args: &[String]) -> Result<(), EalError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = &*started {
        let differs = before.result.is_ok() && before.args != args;
        return if differs {
            Err(EalError::Other(before.args.clone()))
        } else {
            before.result.clone()
        };
    }
    let argv = completed(args)?;
    // In a thread of its own: EAL pins the thread that starts it to a core.
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| init(argv));
        thread.join().unwrap_or_else(|_| Err(EalError::Refused("it panicked".to_owned())))
    });
    *started = Some(Started { args: args.to_vec(), result: result.clone() });
    result
}

/// Whether `args` contains one of `options`, alone or with its value attached.
fn has(args: &[String], options: &[&str]) -> bool {
    args.iter().any(|arg| options.iter().any(|option| arg.starts_with(option)))
}

/// Whether EAL would print its usage and exit: `--help` or any prefix of it, and `h` among flags.
fn is_help(arg: &str) -> bool {
    match arg.strip_prefix("--") {
        Some(long) => !long.is_empty() && "help".starts_with(long),
        None => arg
            .strip_prefix('-')
            .is_some_and(|flags| flags.trim_start_matches('v').starts_with('h')),
    }
}

/// The arguments that EAL gets.
fn completed(args: &[String]) -> Result<Vec<CString>, EalError> {
    let mut all = vec!["weft".to_owned()];
    if !has(args, &CORES) {
        all.extend(["-l".to_owned(), first_core().to_string()]);
    }
    if !has(args, &DEVICES) {
        all.extend(["-a", NO_DEVICE].map(str::to_owned));
    }
    all.extend_from_slice(args);
    if let Some(help) = args.iter().find(|arg| is_help(arg)) {
        return Err(EalError::Argument(help.clone()));
    }
    all.into_iter()
        .map(|arg| CString::new(arg.clone()).map_err(|_| EalError::Argument(arg)))
        .collect()
}

/// The first core that this thread may run on; 0 if the kernel does not say.
fn first_core() -> usize {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: `set` has the size that is given.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    let mut cores = 0..libc::CPU_SETSIZE.cast_unsigned() as usize;
    // SAFETY: the number is within the set's size.
    cores.find(|&core| got == 0 && unsafe { libc::CPU_ISSET(core, &set) }).unwrap_or(0)
}

fn init(argv: Vec<CString>) -> Result<(), EalError> {
    let count = c_int::try_from(argv.len()).unwrap_or(c_int::MAX);
    // EAL reorders the pointers and keeps some of the strings, so they are never freed.
    let mut argv: Vec<*mut c_char> = argv.into_iter().map(CString::into_raw).collect();
    argv.push(core::ptr::null_mut());
    let (done, said) = listen(true, || {
        // SAFETY: `argv` holds `count` C strings and a null behind them.
        unsafe { sys::rte_eal_init(count, argv.as_mut_ptr()) }
    });
    if done >= 0 {
        // Right after the start, before any port creates a mempool: mempools name their functions by this registration.
        return memory::register().map_err(|error| EalError::Refused(error.to_string()));
    }
    Err(EalError::Refused(if said.is_empty() { strerror(errno()) } else { said }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_the_process_is_refused() {
        #[rustfmt::skip] // columns: argument, whether it is refused
        let cases = [("-h", true), ("--help", true), ("--he", true), ("-vh", true), ("-v", false),
            ("--huge-dir", false), ("--h", true), ("-n", false), ("--", false), ("/h", false)];
        for (arg, want) in cases {
            let refused = completed(&[arg.to_owned()]).is_err();
            assert_eq!(refused, want, "{arg}");
        }
        assert!(completed(&["a\0b".to_owned()]).is_err());
    }

    #[test]
    fn cores_and_devices_are_added_unless_they_are_given() {
        let texts = |args: &[&str]| -> Vec<String> {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            completed(&args).unwrap().iter().map(|c| c.to_str().unwrap().to_owned()).collect()
        };
        let core = first_core().to_string();
        assert_eq!(texts(&["--no-huge"]), ["weft", "-l", &core, "-a", NO_DEVICE, "--no-huge"]);
        assert_eq!(texts(&["--lcores=0@1", "--no-pci"]), ["weft", "--lcores=0@1", "--no-pci"]);
        assert_eq!(texts(&["-l0", "-a", "03:00.0"]), ["weft", "-l0", "-a", "03:00.0"]);
    }
}
