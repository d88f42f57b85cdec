//! The processor's time stamp counter: what cycles a frame are counted in.
//!
//! A number that only rises, at the same rate on all cores.
//!
//! Units: TSC cycles, of the processor's nominal clock whatever the core's clock is.
//! Source: Intel SDM volume 3, "Time-stamp counter" (invariant TSC).

/// The counter now; `None` where there is none that a process can read.
#[must_use]
pub fn tsc() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux lets processes use it.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    None
}
