//! Which step of the engine an operation belongs to: its file, its kind and the phase of the run tell.

use super::{Adversary, Phase};
use crate::{Step, backups};
use driver::{Op, OpKind};

/// The list of the backups that a database has taken.
const TAKEN_FILE: &str = "entresol.backups";

impl Adversary {
    /// The step of the engine that an operation belongs to.
    pub(super) fn step(&mut self, op: &Op) -> Option<Step> {
        let kind = op.kind();
        if matches!(kind, OpKind::Cpu | OpKind::Compute) || kind.is_network() {
            return None;
        }
        let phase = self.observed.phase.get();
        match phase {
            Phase::Creating => return Some(Step::Create),
            Phase::Restoring => return Some(Step::Restore),
            Phase::Opening | Phase::Running => {}
        }
        if let Some(step) = self.step_at_place(op) {
            return Some(step);
        }
        let file = match *op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } | Op::Resize { file, .. } => file,
            _ => return Some(Step::Open),
        };
        let name = self.files.get(&file.0).map_or("", |(_, name)| name.as_str());
        let name = if name == "log-2" { "log" } else { name };
        Some(match (name, kind) {
            ("log", OpKind::Resize) => Step::LogGrowth,
            (_, OpKind::Resize) if phase == Phase::Running && name.ends_with(".pages") => Step::DataGrowth,
            (_, OpKind::Resize) => Step::Resize,
            ("entresol.home", OpKind::Write) if is_of_catalog(op) => Step::CatalogAnew,
            ("entresol.home", OpKind::Write) => Step::SuperblockWrite,
            ("entresol.home", _) => Step::SuperblockRead,
            ("double-write", OpKind::Write) => Step::Staging,
            ("double-write", _) => Step::CopiesRead,
            ("log", OpKind::Read) => Step::LogScan,
            ("log", OpKind::Sync) => Step::LogSync,
            ("log", _) if phase == Phase::Opening && !self.log_opened => {
                self.log_opened = true;
                Step::LogOpening
            }
            ("log", _) => Step::LogWrite,
            (tier, kind) if tier.ends_with(".tier") => match kind {
                _ if phase == Phase::Opening && !self.log_opened => Step::TierScan,
                OpKind::Read => Step::TierRead,
                _ if tier == "log-buffer.tier" => Step::LogBuffer,
                _ => Step::TierWrite,
            },
            (backup, kind) if backup.contains(".backup-") => match kind {
                OpKind::Read => Step::SegmentRead,
                OpKind::Sync => Step::SegmentSync,
                _ => Step::SegmentWrite,
            },
            ("undo.space", OpKind::Read) => Step::UndoSpaceRead,
            ("undo.space", _) => Step::UndoSpaceWrite,
            (engine::temp::FILE, OpKind::Read) => Step::TempRead,
            (engine::temp::FILE, OpKind::Write) => Step::TempWrite,
            (_, OpKind::Sync) => Step::DataSync,
            (_, OpKind::Read) => match phase {
                Phase::Opening if !self.log_opened => Step::RedoRead,
                Phase::Opening => Step::UndoRead,
                _ => Step::PageRead,
            },
            _ => match phase {
                Phase::Opening if !self.log_opened => Step::RedoWrite,
                Phase::Opening => Step::UndoWrite,
                _ => Step::PageWrite,
            },
        })
    }

    /// The step if it is one of a place for backups, of the list of those that were taken, or of the archive.
    fn step_at_place(&self, op: &Op) -> Option<Step> {
        let (device, name) = match op {
            Op::Open { device, .. } | Op::Remove { device, .. } | Op::List { device } => (*device, ""),
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } | Op::Resize { file, .. } => {
                let (device, name) = self.files.get(&file.0)?;
                (*device, name.as_str())
            }
            _ => return None,
        };
        match self.devices.get(usize::from(device.0))?.as_str() {
            backups::ARCHIVE => Some(Step::LogArchive),
            place if name == TAKEN_FILE || backups::is_place(place) => Some(Step::OnlineBackup),
            _ => None,
        }
    }
}

/// Whether the write has the size and the place that only a rewrite of the whole catalog has.
fn is_of_catalog(op: &Op) -> bool {
    const SUPERBLOCKS: u64 = 2 * 65_536;
    matches!(*op, Op::Write { offset, length, .. } if offset >= SUPERBLOCKS && length > 4_096)
}
