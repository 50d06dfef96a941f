//! What was damaged, and which errors that explains.
//!
//! A fault excuses the errors that it must cause and no others:
//!
//! * A *flipped bit* or an *unreadable sector* of data that is stored once (a page, the log on one device, the latest copy of a
//!   backup) is reported by an error that names the damaged file. Data that is stored twice must still be served: one copy of
//!   the superblock file (unless a cut or an error has torn the other one meanwhile), a page staged against tearing, a page in a
//!   tier, the log on two devices.
//! * A *lost*, *misdirected* or *stale* write leaves something older that is sound by itself. A page says which page it is and
//!   how many changes it has seen, so a page of another place is found at once, and one that is too old as soon as redo meets
//!   a later change of it. Between two checkpoints nothing remembers what a page that left the buffer had seen: a table of
//!   that would have an entry for each page of the medium. So such a page may be taken for what it shows, and what depends on
//!   it is not judged. A tier's slots are of another kind: while the database is open, and by the cache's table beyond that, it is
//!   known which version each holds, so nothing older is served from them. The log's end is where nothing follows: pages lost there are not missed, those before are.
//!   Clusters of temporary space and versions name their place and their use, and the superblock file has a checksum over a backup's
//!   images, so there every such write is found.
//! * An *error* excuses the operation, what had to be given up for it, and nothing after the next opening.

use crate::{FaultKind, Step, partitions};
use driver::FaultKind as Refusal;
use engine::Error;
use engine::check::Finding;

/// One injected damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// How.
    pub kind: FaultKind,
    /// What was being written.
    pub step: Step,
    /// Where.
    pub file: String,
    /// Whether there is, for certain, another copy that serves.
    pub is_redundant: bool,
    /// Which copy, if it is of the superblock file.
    pub copy: Option<u64>,
    /// Whether a run ended, or a write failed, while the superblock file was being written: the other copy may be torn.
    pub is_exposed: bool,
}

impl Damage {
    /// The cache is another one: to it all writes since are lost.
    pub fn of_cache() -> Damage {
        let (kind, step, file) = (FaultKind::LostWrite, Step::TierWrite, "cache.tier".to_owned());
        Damage { kind, step, file, is_redundant: false, copy: None, is_exposed: true }
    }

    /// Whether it is gone when the database is opened again.
    pub fn is_passing(&self) -> bool {
        self.step.is_temporary() || self.step == Step::UndoSpaceWrite
    }

    fn is_of_superblock(&self) -> bool {
        self.step == Step::SuperblockWrite
    }

    fn is_of_pages(&self) -> bool {
        matches!(self.step, Step::RedoWrite | Step::UndoWrite | Step::PageWrite)
    }

    /// Whether it is of the log.
    pub fn is_of_log(&self) -> bool {
        matches!(self.step, Step::LogWrite | Step::LogBuffer)
    }

    /// Whether it was there for pages that a power cut has torn in their own places.
    fn serves_torn_pages(&self) -> bool {
        let is_gone = matches!(self.kind, FaultKind::Decay | FaultKind::Rot) || self.kind.is_silent();
        self.step == Step::Staging || (self.step == Step::TierWrite && is_gone)
    }

    /// Whether something older may be taken for what was written.
    fn is_undetectable(&self) -> bool {
        let is_alone = self.is_of_pages() || self.is_of_log();
        self.kind.is_silent() && is_alone && !self.is_redundant
    }

    fn explains(&self, error: &Error) -> bool {
        let is_log = self.is_of_log() && self.kind.is_silent();
        match error {
            _ if self.is_redundant || (self.is_of_superblock() && !self.is_exposed) => false,
            Error::DamagedPage { file, detail, .. } => {
                // A torn page is one that nothing can be told of.
                let is_torn = !detail.contains("the log goes on with change");
                *file == self.file || self.serves_torn_pages() && is_torn || is_log
            }
            Error::DamagedBackup { file, .. } | Error::OlderBackup { file } => *file == self.file || is_log,
            Error::DamagedTemp { file, .. } => *file == self.file,
            Error::DamagedLog { .. } => self.is_of_log(),
            Error::NotADatabase { .. } => self.is_of_superblock(),
            Error::Input(fault) => {
                let is_unreadable = matches!(self.kind, FaultKind::Unreadable | FaultKind::Rot);
                is_unreadable && fault.kind == Refusal::Device && fault.message.contains(&format!("'{}'", self.file))
            }
            Error::TierMissing { .. } if self.file.ends_with(".tier") => true,
            // Of a page that cannot be read in its place a missing cache may have a copy.
            Error::TierMissing { .. } => error.to_string().contains(&format!("'{}'", self.file)),
            Error::LogNotRelieved { cause } | Error::LogNotArchived { cause } | Error::RollbackStalled { cause } => {
                self.explains(cause)
            }
            _ => false,
        }
    }

    /// The same as if no other copy were whole.
    fn exposed(&self) -> Damage {
        Damage { is_exposed: true, ..self.clone() }
    }

    fn explains_finding(&self, finding: &Finding) -> bool {
        let is_log = self.is_of_log() && self.kind.is_silent();
        let is_named = finding.what.contains(&format!("'{}'", self.file));
        let is_own = self.file.ends_with(".pages") && (is_named || is_file_of(&self.file, &finding.partition));
        // A page whose latest changes are in a cache alone.
        let is_of_cache = self.step == Step::TierWrite && is_named;
        !self.is_redundant && (is_own || is_of_cache || self.serves_torn_pages() || is_log)
    }
}

/// Whether a file may be one of this partition: an index has its name, too, one that was truncated a number. What a client of partitions
/// calls its own may have had any other name of that client before.
fn is_file_of(file: &str, partition: &str) -> bool {
    match partition.rsplit_once('-') {
        Some((client, _)) if partitions::is_own(partition) => file.starts_with(&format!("{client}-")),
        _ => file.starts_with(&format!("{partition}.")),
    }
}

/// Whether injected damage explains the error.
pub fn explain(damages: &[Damage], error: &Error) -> bool {
    let is_damaged = |copy: u64| damages.iter().any(|damage| damage.copy == Some(copy) && !damage.is_redundant);
    let without_copy = |damage: &Damage| damage.is_of_superblock() && is_damaged(0) && is_damaged(1);
    damages.iter().any(|damage| damage.explains(error) || (without_copy(damage) && damage.exposed().explains(error)))
}

/// Whether injected damage explains the finding of a check.
pub fn explain_finding(damages: &[Damage], finding: &Finding) -> bool {
    damages.iter().any(|damage| damage.explains_finding(finding))
}

/// Whether something older may be taken for what was written.
pub fn has_undetectable(damages: &[Damage]) -> bool {
    damages.iter().any(Damage::is_undetectable)
}

/// The same where only the records of one partition are looked at, which never had another name.
pub fn has_undetectable_in(damages: &[Damage], partition: &str) -> bool {
    let file = format!("{partition}.pages");
    damages.iter().any(|damage| damage.is_undetectable() && (damage.is_of_log() || damage.file == file))
}

/// No other device of the log serves any more for what is damaged on one.
pub fn expose_log(damages: &mut [Damage]) {
    damages.iter_mut().filter(|damage| damage.is_of_log()).for_each(|damage| damage.is_redundant = false);
}

/// Whether an error says that it was injected.
pub fn is_injected(text: &str) -> bool {
    text.contains("(injected)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_explained_by_damage_of_files_of_their_partition_alone() {
        let what = || "page 3 is lost: neither in use nor free".to_owned();
        let finding = |partition: &str| Finding { partition: partition.to_owned(), page: 3, what: what() };
        let is_explained = |file: &str, partition: &str| {
            let (kind, step, file) = (FaultKind::LostWrite, Step::PageWrite, file.to_owned());
            let damage = Damage { kind, step, file, is_redundant: false, copy: None, is_exposed: false };
            explain_finding(&[damage], &finding(partition))
        };
        assert!(is_explained("orders.pages", "orders") && !is_explained("orders.pages", "order"));
        assert!(is_explained("orders.by.pages", "orders"), "an index");
        assert!(is_explained("orders.17.pages", "orders"), "it was truncated");
        assert!(is_explained("own-1-4.pages", "own-1-2"), "it was renamed");
        assert!(!is_explained("own-2-4.pages", "own-1-2") && !is_explained("records.pages", "own-1-2"));
    }
}
