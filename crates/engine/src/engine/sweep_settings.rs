//! How memory-resident sets are swept.

use crate::backup::DEPTH;
use crate::{Error, Result};
use structures::set::{Capture, SweepUnit};

/// What a sweep takes of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// The state at the moment at which the segment is taken; no transaction waits, nothing is consistent (FUZZY).
    #[default]
    Fuzzy,
    /// The same, but no call touches segments of which some were taken and some not (ACBW).
    ActionBlackWhite,
    /// The same, but no transaction does, unless it only reads (TCBW).
    TransactionBlackWhite,
    /// The state at the beginning of the sweep: a segment is copied before it is first changed (ACCOU). System M completes
    /// every action before the sweep begins; here an action is one synchronous step, so that none is ever under way.
    ActionCopyOnUpdate,
    /// The same after every transaction has been completed, if [`SweepSettings::quiesce`] says so (TCCOU). Without it this is the
    /// same as ACCOU: images leave unfinished changes out, so what both take is transaction-consistent at any moment.
    TransactionCopyOnUpdate,
    /// The state at the beginning of the sweep: a record is copied before it is first changed (CALC: Ren, Diamond, Abadi and
    /// Thomson, SIGMOD 2016). It costs transactions least among the consistent ones: none waits or begins again, and none
    /// copies more than the records that it changes.
    StableVersions,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 6] = [
        Strategy::Fuzzy,
        Strategy::ActionBlackWhite,
        Strategy::TransactionBlackWhite,
        Strategy::ActionCopyOnUpdate,
        Strategy::TransactionCopyOnUpdate,
        Strategy::StableVersions,
    ];

    pub(crate) fn capture(self) -> Option<Capture> {
        match self {
            Strategy::Fuzzy => None,
            Strategy::ActionBlackWhite => Some(Capture::BlackWhite(SweepUnit::Action)),
            Strategy::TransactionBlackWhite => Some(Capture::BlackWhite(SweepUnit::Transaction)),
            Strategy::ActionCopyOnUpdate | Strategy::TransactionCopyOnUpdate => Some(Capture::CopyOnUpdate),
            Strategy::StableVersions => Some(Capture::StableVersions),
        }
    }
}

/// How the checkpoint server sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepSettings {
    /// What it takes of a segment.
    pub strategy: Strategy,
    /// Whether a segment is copied, so that it can be changed while the copy is written. Without spooling a consistent sweep
    /// writes the segment itself, and transactions that want to use it wait. FUZZY copies always, because no transaction waits
    /// for it; System M writes segments while they change, so that on described hardware these copies cost nothing unless it
    /// spools.
    pub spool: bool,
    /// Whether TCCOU lets transactions come to their ends before it begins, while no other begins, as System M does. What it
    /// takes is the same without.
    pub quiesce: bool,
    /// The least time from the beginning of one sweep to that of the next in nanoseconds (System M, section 2.3: the
    /// checkpoint interval floor); 0: one follows the other. `None`: sets are swept when the policy asks for checkpoints.
    pub interval_ns: Option<u64>,
    /// Over how much of that interval a sweep that no task waits for spreads its writes, in percent, up to 90: the fewer a
    /// second, the fewer log writes find one before them at the device. A restart has to replay two intervals of log at most in
    /// any case.
    pub spread_percent: u8,
    /// For which share of the time a sweep that no task waits for writes, in percent, 1 to 100, where it has no interval to be
    /// spread over: after each write it pauses, so that the log has the device to itself, unless the log would fill up
    /// meanwhile. With 100 it writes as fast as copies allow, `segments_in_flight` at once.
    pub device_percent: u8,
    /// How many segments are being written at once, at least 1; without spooling this many are locked. System M: 1.
    pub segments_in_flight: usize,
    /// Serves a burst that nothing disturbs from `now` to `end`, if a server is free. A lone burst does not compete, so its
    /// class and the discipline do not matter.
    pub segment_interval_ns: u64,
}

impl Default for SweepSettings {
    fn default() -> SweepSettings {
        SweepSettings {
            strategy: Strategy::default(),
            spool: true,
            quiesce: false,
            interval_ns: None,
            spread_percent: 50,
            device_percent: 10,
            segments_in_flight: DEPTH,
            segment_interval_ns: 0,
        }
    }
}

impl SweepSettings {
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn check(&self) -> Result<()> {
        let (spread, device) = (self.spread_percent, self.device_percent);
        if spread > 90 {
            let why = format!("a sweep spreads its writes over up to 90 percent of the interval, not {spread}");
            return Err(Error::Setting(why));
        }
        if !(1..=100).contains(&device) {
            let why = format!("a sweep writes for 1 to 100 percent of the time, not {device}");
            return Err(Error::Setting(why));
        }
        Ok(())
    }
}
