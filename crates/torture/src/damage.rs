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
//!   that would have an entry for each page of the medium. So such a page may be taken for what it shows, once it is read: the
//!   damage has *spread*, and what its partition shows from then on is not judged, nor what follows from that for a history. Other
//!   partitions are. A tier's slots are of another kind: while the database is open, and by the cache's table beyond that, it is
//!   known which version each holds, so nothing older is served from them. The log's end is where nothing follows: pages lost
//!   there are not missed, those before are. Clusters of temporary space and versions name their place and their use, and the
//!   superblock file has a checksum over a backup's images, so there every such write is found.
//! * An *error* excuses the operation, what had to be given up for it, and nothing after the next opening.
//!
//! No damage excuses anything before the engine has read it. Once one was reported, the medium is repaired and the scenario goes on:
//! then nothing may be missing, and only what has spread is an excuse any more.

use crate::rot::SUPERBLOCK_STRETCH;
use crate::{FaultKind, Step, partitions};
use driver::FaultKind as Refusal;
use engine::Error;
use engine::check::Finding;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use virtual_driver::{Media, MediaDamage};

/// What was damaged in a scenario so far, and may explain something. What a run has left under way may add to it in the next one.
pub type Damages = Rc<RefCell<Vec<Damage>>>;

/// One injected damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// How.
    pub kind: FaultKind,
    /// What was being written.
    pub step: Step,
    /// The file.
    pub file: String,
    /// What the media know of it: nothing of a cache that was replaced.
    pub found: Option<MediaDamage>,
    /// The size of a page of the file, in bytes.
    pub page_size: u64,
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
        Damage { kind, step, file, found: None, page_size: 1, is_redundant: false, copy: None, is_exposed: true }
    }

    /// Whether the engine has read any of it.
    pub fn is_met(&self) -> bool {
        self.found.as_ref().is_none_or(|found| found.is_met)
    }

    /// Whether any of it shows still, or may again.
    fn is_present(&self) -> bool {
        self.found.as_ref().is_none_or(|found| found.is_present)
    }

    /// Whether something older may have been taken for what was written, and be there for good, be the medium repaired or not. A
    /// partition's is gone with its file.
    pub fn has_spread(&self) -> bool {
        let is_gone = self.found.as_ref().is_some_and(|found| found.is_removed) && !self.is_of_log();
        self.is_met() && self.is_undetectable() && !is_gone
    }

    /// Whether it is there still although an opening mends it: that of a copy of the superblock, the other one of which is whole.
    pub fn is_left(&self) -> bool {
        let is_of_copy = |place: &Range<u64>| place.end <= 2 * SUPERBLOCK_STRETCH;
        let is_mended = |found: &MediaDamage| found.places.iter().all(is_of_copy) && found.is_met && found.is_present;
        self.is_of_superblock() && self.is_redundant && self.found.as_ref().is_some_and(is_mended)
    }

    /// Whether it may explain anything in a run to come.
    pub fn is_over(&self) -> bool {
        self.is_passing() || !self.is_present() && !self.has_spread()
    }

    /// Whether this page of its file is one of those damaged. A page that is older than it should be may have others look wrong.
    fn concerns(&self, page: u32) -> bool {
        let bytes = u64::from(page) * self.page_size..(u64::from(page) + 1) * self.page_size;
        let overlaps = |place: &Range<u64>| place.start < bytes.end && bytes.start < place.end;
        let is_within = self.found.as_ref().is_some_and(|found| found.places.iter().any(overlaps));
        is_within || !self.file.ends_with(".pages") || self.kind.is_silent()
    }

    /// Whether it is gone when the database is opened again.
    fn is_passing(&self) -> bool {
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
            _ if !self.is_met() => false,
            _ if self.is_redundant || (self.is_of_superblock() && !self.is_exposed) => false,
            Error::DamagedPage { file, detail, page } => {
                // A torn page is one that nothing can be told of.
                let is_torn = !detail.contains("the log goes on with change");
                *file == self.file && self.concerns(page.number) || self.serves_torn_pages() && is_torn || is_log
            }
            Error::DamagedBackup { file, .. } | Error::OlderBackup { file } => *file == self.file || is_log,
            Error::DamagedTemp { file, .. } => *file == self.file,
            Error::DamagedLog { .. } => self.is_of_log(),
            Error::NotADatabase { .. } => self.is_of_superblock(),
            Error::Input(fault) => {
                let is_unreadable = matches!(self.kind, FaultKind::Unreadable | FaultKind::Rot);
                is_unreadable && fault.kind == Refusal::Device && fault.message.contains(&format!("'{}'", self.file))
            }
            Error::TierMissing { .. } | Error::ForeignTier { .. } if self.file.ends_with(".tier") => true,
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
        if self.is_redundant || !self.is_met() {
            return false;
        }
        let is_named = finding.what.contains(&format!("'{}'", self.file));
        // What an unreadable page leads to is not found to be in use.
        let is_of_page = self.concerns(finding.page) || finding.what.contains("neither in use nor free");
        let is_own = is_named || is_of_page && is_file_of(&self.file, &finding.partition);
        // A page whose latest changes are in a cache alone.
        let is_of_cache = self.step == Step::TierWrite && is_named;
        let is_of_log = self.is_of_log() && self.kind.is_silent();
        self.file.ends_with(".pages") && is_own || is_of_cache || self.serves_torn_pages() || is_of_log
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

/// Whether something older was taken, or may have been, for what was written of one of these partitions.
pub fn has_spread_to(damages: &[Damage], partitions: &[&str]) -> bool {
    let is_hit = |damage: &Damage| partitions.iter().any(|partition| is_file_of(&damage.file, partition));
    damages.iter().any(|damage| damage.has_spread() && (damage.is_of_log() || is_hit(damage)))
}

/// Whether the error may come of something older that was taken for what was written: of the log anything may, of a partition what
/// says that its pages do not fit together, or that its records are other than expected.
pub fn may_have_led_to(damages: &[Damage], error: &Error) -> bool {
    let is_of = |damage: &Damage| match error {
        _ if damage.is_of_log() => true,
        Error::DamagedPage { file, .. } => damage.file == *file,
        Error::Duplicate(_) | Error::NoRecord(_) | Error::NotRepeated { .. } => true,
        _ => false,
    };
    match error {
        Error::LogNotRelieved { cause } | Error::RollbackStalled { cause } => may_have_led_to(damages, cause),
        _ => damages.iter().any(|damage| damage.has_spread() && is_of(damage)),
    }
}

/// Asks the media what has become of what was damaged.
pub fn look_at(damages: &mut [Damage], media: &Media) {
    for found in damages.iter_mut().filter_map(|damage| damage.found.as_mut()) {
        *found = media.damage(found.number).expect("what was damaged stays known");
    }
}

/// The latest damage of a file that concerns this byte and is not among these: earlier ones may be over, and forgotten.
pub fn unknown_at(damages: &[Damage], media: &Media, (device, file): (&str, &str), byte: u64) -> Option<MediaDamage> {
    let is_known =
        |number| damages.iter().any(|damage| damage.found.as_ref().is_some_and(|found| found.number == number));
    let is_there = |damage: &MediaDamage| damage.places.iter().any(|place| place.contains(&byte));
    let unknown = media.damages(device, file).into_iter().filter(|damage| is_there(damage) && !is_known(damage.number));
    unknown.max_by_key(|damage| damage.number)
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
    use base::{PageId, PartitionId};

    fn flipped(is_met: bool) -> Damage {
        let places = std::iter::once(9_000..9_001).collect();
        let found = Some(MediaDamage { number: 1, places, is_met, is_present: true, is_removed: false });
        let (kind, step, file, page_size) = (FaultKind::Flip, Step::PageWrite, "orders.pages".to_owned(), 4_096);
        Damage { kind, step, file, found, page_size, is_exposed: false, ..Damage::of_cache() }
    }

    fn damaged(number: u32) -> Error {
        let (page, file) = (PageId::new(PartitionId(3), number), "orders.pages".to_owned());
        Error::DamagedPage { page, file, detail: "its checksum is wrong".to_owned() }
    }

    #[test]
    fn damage_explains_errors_about_its_own_page_once_it_was_read() {
        assert!(explain(&[flipped(true)], &damaged(2)));
        assert!(!explain(&[flipped(false)], &damaged(2)), "nothing has read it");
        assert!(!explain(&[flipped(true)], &damaged(1)), "another page");
    }

    #[test]
    fn what_an_older_page_shows_excuses_its_partition_alone() {
        let lost = |is_met| Damage { kind: FaultKind::LostWrite, ..flipped(is_met) };
        assert!(has_spread_to(&[lost(true)], &["customers", "orders"]));
        assert!(!has_spread_to(&[lost(true)], &["customers"]) && !has_spread_to(&[lost(true)], &[]));
        assert!(!has_spread_to(&[lost(false)], &["orders"]), "nothing has read it");
        assert!(!has_spread_to(&[flipped(true)], &["orders"]), "a checksum tells");
        let removed = |mut damage: Damage| {
            damage.found.iter_mut().for_each(|found| found.is_removed = true);
            damage
        };
        assert!(!has_spread_to(&[removed(lost(true))], &["orders"]), "its file is gone");
        let of_log = removed(Damage { step: Step::LogWrite, file: "log".to_owned(), ..lost(true) });
        let damages = [of_log];
        assert!(has_spread_to(&damages, &[]) && has_spread_to(&damages, &["customers"]));
        assert!(may_have_led_to(&[lost(true)], &damaged(7)) && !may_have_led_to(&[lost(false)], &damaged(7)));
    }

    #[test]
    fn findings_are_explained_by_damage_of_files_of_their_partition_alone() {
        let what = || "page 3 is lost: neither in use nor free".to_owned();
        let finding = |partition: &str| Finding { partition: partition.to_owned(), page: 3, what: what() };
        let is_explained = |file: &str, partition: &str| {
            let (kind, step, file) = (FaultKind::LostWrite, Step::PageWrite, file.to_owned());
            let damage = Damage { kind, step, file, is_exposed: false, ..Damage::of_cache() };
            explain_finding(&[damage], &finding(partition))
        };
        assert!(is_explained("orders.pages", "orders") && !is_explained("orders.pages", "order"));
        assert!(is_explained("orders.by.pages", "orders"), "an index");
        assert!(is_explained("orders.17.pages", "orders"), "it was truncated");
        assert!(is_explained("own-1-4.pages", "own-1-2"), "it was renamed");
        assert!(!is_explained("own-2-4.pages", "own-1-2") && !is_explained("records.pages", "own-1-2"));
    }
}
