//! What an error means for those that get it.

use super::Error;
use base::PartitionId;
use driver::FaultKind;

impl Error {
    /// The error of a number that leads to no partition.
    #[cold]
    pub(crate) fn no_partition(id: PartitionId) -> Error {
        Error::NoPartition(format!("number {}", id.0))
    }

    /// What it means for a transaction that a checkpoint failed which was to make room in the log.
    pub(crate) fn not_relieved(cause: Error) -> Error {
        match cause {
            Error::LogFailed(_) => cause,
            cause => Error::LogNotRelieved { cause: Box::new(cause) },
        }
    }

    /// What it means for others that the end of a transaction fails. A log that has failed keeps it from being tried again.
    pub(crate) fn stalled(cause: Error) -> Error {
        match cause {
            Error::LogFailed(_) => cause,
            cause => Error::RollbackStalled { cause: Box::new(cause) },
        }
    }

    /// Whether a page could not be had because its bytes cannot be read, or are not what was written.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Error::Input(fault) => fault.kind == FaultKind::Device,
            Error::DamagedPage { .. } => true,
            _ => false,
        }
    }

    /// Whether the same call on the same data fails in the same way again.
    pub(crate) fn is_replayable(&self) -> bool {
        matches!(
            self,
            Error::Duplicate(_)
                | Error::NoRecord(_)
                | Error::NoPartition(_)
                | Error::TooLarge { .. }
                | Error::WrongOrganization { .. }
                | Error::Field { .. }
                | Error::Setting(_)
                | Error::Argument(_)
                | Error::Unsuitable(_)
                | Error::Inconsistent(_)
                | Error::NoDevice(_)
                | Error::PartitionExists(_)
                | Error::PartitionDiffers { .. }
                | Error::PartitionLimit
                | Error::NotEmpty(_)
                | Error::NoProcedure { .. }
                | Error::ReplayDiverged(_)
        )
    }

    /// Whether the transaction was in others' way, or the checkpoint's, and may be run again as it was.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Deadlock | Error::MixedColours(_) | Error::WriteConflict(_) | Error::LogCrowded { .. })
            || matches!(self, Error::Aborted { cause } if cause.is_conflict())
    }
}
