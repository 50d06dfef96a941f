//! Numbers that designs go by.

/// A number that some designs go by, and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// [`Parameters::fill_threshold_percent`].
    FillThreshold,
    /// [`Parameters::dirty_max_percent`].
    DirtyMax,
    /// [`Parameters::group_pages`].
    GroupPages,
    /// [`Parameters::throttle`].
    Throttle,
}

/// What designs go by. The defaults are those of Do et al. (2011), Table 2; their λ is that for TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Until this share of the cache is full every page enters that may, in percent (τ).
    pub fill_threshold_percent: u8,
    /// How much of the cache may be dirty before the cleaner begins to work, in percent (λ).
    pub dirty_max_percent: u8,
    /// The most pages side by side in their partition that the cleaner writes to it by one operation, at least one (α).
    pub group_pages: u32,
    /// While more operations of the cache than these are under way, nothing goes through it that need not (μ).
    pub throttle: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { fill_threshold_percent: 95, dirty_max_percent: 50, group_pages: 32, throttle: 100 }
    }
}
