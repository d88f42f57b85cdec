//! Tools at both ends of a wire while switches are measured: generator, sink, redirector, prober.
//!
//! [`program`] assembles BPF for XDP, [`bpf`] loads and attaches it, [`source`] and [`latency`] use
//! it; [`distance`] tells how far apart two cores are. `weft-kit` is the command line.
//!
//! Source: Debian's xdp-tools do not run on new kernels, and no eBPF toolchain is needed here.

#[expect(unsafe_code, reason = "bpf(2) and a map's memory")]
pub mod bpf;
pub mod distance;
pub mod frame;
pub mod insn;
pub mod latency;
pub mod program;
pub mod source;
#[expect(unsafe_code, reason = "system calls")]
pub mod sys;

#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// A system call failed.
    #[error("{what}")]
    Call {
        /// Action that failed, such as "open a packet socket".
        what: String,
        source: std::io::Error,
    },
    /// The kernel's verifier refused a program.
    #[error("the verifier refuses the program {name}: {log}")]
    Refused {
        /// Name of the program.
        name: &'static str,
        /// Last lines of its log.
        log: String,
    },
    /// A value that cannot be used.
    #[error("{0}")]
    Usage(String),
}

impl KitError {
    /// Error of this thread's last system call.
    fn last(what: impl Into<String>) -> Self {
        Self::Call { what: what.into(), source: std::io::Error::last_os_error() }
    }
}
