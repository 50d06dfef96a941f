use base::Lsn;

/// How a backup has ended, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was not answered.
    InDoubt,
    /// It is whole, and shows what was committed up to this position.
    Whole(Lsn),
}

/// A backup that was begun in one of the places.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its place.
    pub place: &'static str,
    /// The place of the one that it builds on.
    pub base: Option<&'static str>,
    /// Where the log ended when it began.
    pub begun: Lsn,
    /// How it has ended.
    pub ended: Ended,
    /// Whether the archive of its log was there all the time.
    pub is_archived: bool,
}

impl Taken {
    /// Whether it is whole for certain.
    pub fn is_whole(&self) -> bool {
        matches!(self.ended, Ended::Whole(_))
    }
}
