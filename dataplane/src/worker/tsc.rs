//! The processor's time stamp counter, in which cycles per frame are counted.
//!
//! It only rises, at the same rate on all cores.
//!
//! Units: TSC cycles, of the processor's nominal clock whatever the core's clock is.
//! Source: Intel SDM volume 3, "Time-stamp counter" (invariant TSC).

/// The counter now; `None` on machines where a process cannot read one.
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
