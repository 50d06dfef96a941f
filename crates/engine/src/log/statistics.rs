use base::statistics::Histogram;

/// What the log did since it was opened or since [`super::Log::restart_statistics`].
#[derive(Clone, Debug, Default)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Their bytes, without page headers and padding.
    pub record_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written, with page headers and padding.
    pub bytes_written: u64,
    /// Syncs completed.
    pub syncs: u64,
    /// Commits asked for.
    pub commits: u64,
    /// Writes submitted that commits asked for; `group_commits / commit_writes` is the mean size of a group.
    pub commit_writes: u64,
    /// Commits that asked for those writes.
    pub group_commits: u64,
    /// Commits of the largest group.
    pub group_size_max: u32,
    /// Time from a write's submission to its completion.
    pub write_latency: Histogram,
}

impl LogStatistics {
    /// The mean number of commits that one write carried; zero before the first.
    pub fn group_size_mean(&self) -> f64 {
        if self.commit_writes == 0 { 0.0 } else { self.group_commits as f64 / self.commit_writes as f64 }
    }
}
