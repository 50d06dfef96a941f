//! Which pages the designs of Do et al. (2011) take: those that were read at random (section 2.2), and all of them until the
//! cache was full for the first time but for a small rest (section 3.3.1, aggressive filling).

use super::{Contents, Pattern, Setting};

pub struct Admission {
    /// The share of the cache, in percent, that is filled with whatever comes (τ).
    fill_threshold_percent: u8,
    /// Whether it was full to that extent once.
    is_filled: bool,
}

impl Admission {
    pub fn new(setting: &Setting) -> Admission {
        Admission { fill_threshold_percent: setting.parameters.fill_threshold_percent, is_filled: false }
    }

    /// Whether a page enters that was read so.
    pub fn takes(&mut self, pattern: Pattern, contents: &Contents<'_>) -> bool {
        let [used, capacity] = [contents.used(), contents.capacity()].map(u64::from);
        self.is_filled |= used * 100 >= capacity * u64::from(self.fill_threshold_percent);
        !self.is_filled || pattern == Pattern::Random
    }
}
