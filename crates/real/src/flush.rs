//! Forcing bytes from the processor's caches to non-volatile memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// The instruction that writes a cache line back to memory. The first that the processor has is used: `clwb` keeps the line,
/// `clflushopt` drops it, `clflush` drops it and waits for each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Clwb,
    ClflushOpt,
    Clflush,
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

impl Flush {
    /// The instruction's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flush::Clwb => "clwb",
            Flush::ClflushOpt => "clflushopt",
            Flush::Clflush => "clflush",
        }
    }

    /// The best instruction of this processor; `None` on one whose instructions are not known here.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Option<Flush> {
        // Intel SDM, CPUID leaf 7: bit 24 of EBX is clwb, bit 23 clflushopt. Every x86-64 has clflush and leaf 0.
        let leaves = std::arch::x86_64::__cpuid(0).eax;
        let features = if leaves >= 7 { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
        Some(match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Flush::Clwb,
            (_, 1) => Flush::ClflushOpt,
            _ => Flush::Clflush,
        })
    }

    /// The best instruction of this processor; `None` on one whose instructions are not known here.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Option<Flush> {
        None
    }

    /// Writes the lines that hold these bytes back and waits until that is done.
    ///
    /// # Safety
    /// The bytes are mapped.
    #[cfg(target_arch = "x86_64")]
    pub(crate) unsafe fn flush(self, start: NonNull<u8>, length: usize) {
        use std::arch::asm;
        let end = start.as_ptr().wrapping_add(length);
        let mut line = start.as_ptr().map_addr(|address| address & !(LINE - 1));
        while line < end {
            // SAFETY: the line holds at least one mapped byte, hence is mapped; the instructions change no byte. The
            // processor has the instruction: `detect` found it.
            unsafe {
                match self {
                    Flush::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Flush::ClflushOpt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Flush::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
            line = line.wrapping_add(LINE);
        }
        // SAFETY: a fence is always allowed. Without it the flushes are not ordered before what follows.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// Never called: [`Flush::detect`] finds no instruction here.
    ///
    /// # Safety
    /// None needed.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) unsafe fn flush(self, _start: NonNull<u8>, _length: usize) {
        unreachable!("no instruction was detected");
    }
}
