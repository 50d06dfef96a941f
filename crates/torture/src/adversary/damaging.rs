//! What becomes of what was written, and of syncs.

use super::{Adversary, Flight};
use crate::damage::{self, Damage};
use crate::plan::SectorDamage;
use crate::rot::superblock_copy_at;
use crate::{FaultKind, Step};
use driver::{Completion, OpKind, Token};
use virtual_driver::Injury;

impl Adversary {
    /// Notes where an acknowledged write lies, and damages it as planned.
    pub(super) fn damage(&mut self, step: Step, flight: &Flight) {
        let Some((device, file, offset, length)) = &flight.write else { return };
        let byte = offset + flight.damage.map_or(0, |_| self.random.below(u64::from(*length)));
        let device = &self.devices[usize::from(device.0)];
        let media = self.driver.media();
        let kind = match (flight.injury, flight.damage) {
            (Some(Injury::Lose), _) => FaultKind::LostWrite,
            (Some(Injury::Misdirect), _) => FaultKind::Misdirected,
            (Some(Injury::Stale), _) => FaultKind::StaleRead,
            (_, Some(SectorDamage::Flip)) => {
                let Ok(()) = media.flip_bit(device, file, byte, self.random.below(8) as u8) else { return };
                FaultKind::Flip
            }
            (_, Some(SectorDamage::Unreadable)) => {
                let Ok(()) = media.make_unreadable(device, file, byte, 1) else { return };
                FaultKind::Unreadable
            }
            _ => return,
        };
        // A stale read is hit when it is read.
        if kind != FaultKind::StaleRead {
            self.hit(kind, step);
        }
        let mut damages = self.observed.damages.borrow_mut();
        let Some(found) = damage::unknown_at(&damages, media, (device, file), byte) else { return };
        // The other device serves, if it is whole.
        let is_elsewhere = damages.iter().any(|damage| damage.is_of_log() && damage.file != *file);
        let is_redundant = step == Step::LogWrite && self.observed.is_log_doubled.get() && !is_elsewhere;
        let (found, copy, page_size) = (Some(found), superblock_copy_at(file, *offset), self.page_size);
        damages.push(Damage {
            kind,
            step,
            file: file.clone(),
            found,
            page_size,
            is_redundant,
            copy,
            is_exposed: false,
        });
        if is_elsewhere {
            damage::expose_log(&mut damages);
        }
    }

    /// Notes what became of a write that is not told of for now: the run may end before it is.
    pub(super) fn note_withheld(&mut self, completion: &Completion) {
        let Some(mut flight) = self.flights.remove(&completion.token) else { return };
        if let (Some(step), Ok(_), OpKind::Write) = (flight.step, &completion.result, flight.kind) {
            self.damage(step, &flight);
            flight.is_noted = true;
        }
        self.flights.insert(completion.token, flight);
    }

    /// Fails the sync of a load that is to fail.
    pub(super) fn fail_load(&mut self, token: Token, step: Step, flight: &mut Flight) {
        let name = flight.file.and_then(|file| self.files.get(&file)).map(|(_, name)| name);
        let is_sync = step == Step::DataSync && flight.kind == OpKind::Sync && flight.injury.is_none();
        if is_sync && name.is_some_and(|name| self.observed.failing_loads.borrow_mut().remove(name)) {
            let injury = Injury::Forget { cached: false };
            flight.injury = Some(injury);
            self.driver.inject(token, injury);
        }
    }
}
