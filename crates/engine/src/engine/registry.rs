//! The active transactions: numbers, first log positions, whose end fails.

use super::{Active, TransactionState};
use crate::Error;
use base::{Lsn, TransactionId};
use executor::Caller;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use structures::lock::Owner;
use structures::undo::UndoList;

struct ActiveTransaction {
    /// From where a scan of the log finds all its records; `Lsn::MAX` while it has none.
    first_lsn: Lsn,
    id: TransactionId,
    undo: Rc<RefCell<UndoList>>,
    /// Who has used it last; none once its end goes on by itself, or is over.
    user: Rc<Cell<Option<Caller>>>,
    /// Whether room in the log is promised to it.
    is_promised: bool,
    /// Whether it is that of a closure, which has it for as long as it runs.
    is_of_closure: bool,
    /// Whether it only reads a snapshot.
    only_reads: bool,
}

/// The table of active transactions, indexed by lock owner.
pub struct Registry {
    next: u64,
    /// The oldest log position that an ended transaction left work behind at, for the next restart.
    retained_lsn: Lsn,
    slots: Vec<ActiveTransaction>,
    /// Which of two groups those belong to that begin now, and how many of each have not ended: so it can be waited for that
    /// all have ended that had begun at some moment.
    group: u8,
    groups: [usize; 2],
    /// How often those that begin were given another group.
    changes: u64,
    /// States of ended transactions, each with its owner number, for reuse.
    spare: Vec<Active>,
    /// By age, transactions that the log had no room for, and how many bytes they will be promised when they are run again.
    refused: VecDeque<(u64, u64)>,
    /// By age, those that have given way in the log to a transaction of their own task, and whether all of the log was kept for that.
    own_before: VecDeque<(u64, bool)>,
    /// Transactions whose rollback fails, and why.
    stalled: Vec<(Owner, Error)>,
}

/// How many refused transactions are remembered: those that are not run again make room for others.
const REFUSED_MAX: usize = 1_000;

impl Registry {
    /// An empty table that numbers from `next` on.
    pub fn new(next: u64) -> Registry {
        Registry {
            next,
            retained_lsn: Lsn::MAX,
            slots: Vec::new(),
            group: 0,
            groups: [0; 2],
            changes: 0,
            spare: Vec::new(),
            refused: VecDeque::new(),
            own_before: VecDeque::new(),
            stalled: Vec::new(),
        }
    }

    /// Greater than every number given out.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Numbers given out from now on are greater than `id`.
    pub fn skip(&mut self, id: TransactionId) {
        self.next = self.next.max(id.0 + 1);
    }

    /// Enters a new transaction.
    pub fn begin(&mut self, began: Option<u64>) -> Active {
        let mut state = self.spare.pop().unwrap_or_else(|| {
            let state = TransactionState { owner: Owner(self.slots.len() as u32), ..TransactionState::default() };
            let (undo, user) = (Rc::clone(&state.undo), Rc::clone(&state.user));
            self.slots.push(ActiveTransaction {
                first_lsn: Lsn::MAX,
                id: TransactionId::default(),
                undo,
                user,
                is_promised: false,
                is_of_closure: false,
                only_reads: false,
            });
            Active(Some(Box::new(state)))
        });
        state.id = TransactionId(self.next);
        let slot = &mut self.slots[state.owner.0 as usize];
        (slot.id, slot.is_of_closure, slot.only_reads) = (state.id, false, false);
        state.began = began.unwrap_or(self.next);
        state.group = self.enter_group();
        self.next += 1;
        state
    }

    /// Enters a transaction again that an earlier opening has begun, whose records begin there in the log.
    pub fn resume(&mut self, id: TransactionId, first: Lsn) -> Active {
        let mut state = self.begin(None);
        state.id = id;
        let slot = &mut self.slots[state.owner.0 as usize];
        (slot.id, slot.first_lsn) = (id, first);
        state
    }

    /// The number of the transaction that has this place now, or had it last.
    pub fn id_of(&self, owner: Owner) -> TransactionId {
        self.slots.get(owner.0 as usize).map_or_else(TransactionId::default, |slot| slot.id)
    }

    /// Who has used the transaction last that has this place; `None` if it ends by itself, or has ended.
    pub fn user_of(&self, owner: Owner) -> Option<Caller> {
        self.slots.get(owner.0 as usize)?.user.get()
    }

    /// Who has used each active transaction last, but those that end by themselves.
    pub fn users(&self) -> impl Iterator<Item = Caller> {
        self.slots.iter().filter_map(|slot| slot.user.get())
    }

    /// The active transactions, but those that end by themselves and those that only read a snapshot.
    pub fn owners_in_use(&self) -> Vec<Owner> {
        (0..)
            .map(Owner)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.user.get().is_some() && !slot.only_reads)
            .map(|(owner, _)| owner)
            .collect()
    }

    /// Notes that a transaction only reads a snapshot.
    pub fn give_to_snapshot(&mut self, owner: Owner) {
        self.slots[owner.0 as usize].only_reads = true;
    }

    /// Notes that a transaction is a closure's.
    #[inline]
    pub fn give_to_closure(&mut self, owner: Owner) {
        self.slots[owner.0 as usize].is_of_closure = true;
    }

    /// Whether a transaction is a closure's.
    pub fn is_of_closure(&self, owner: Owner) -> bool {
        self.slots[owner.0 as usize].is_of_closure
    }

    /// Whether one of the active transactions, but for this one, was used last by a user like this.
    pub fn has_other(&self, owner: Option<Owner>, is_user: impl Fn(Caller) -> bool) -> bool {
        let own = owner.map(|owner| owner.0 as usize);
        let others = self.slots.iter().enumerate().filter(|(index, _)| Some(*index) != own);
        others.filter_map(|(_, slot)| slot.user.get()).any(is_user)
    }

    /// Users of partitions outside of transactions are counted, too.
    pub fn enter_group(&mut self) -> u8 {
        self.groups[usize::from(self.group)] += 1;
        self.group
    }

    /// Ends that.
    pub fn leave_group(&mut self, group: u8) {
        self.groups[usize::from(group)] -= 1;
    }

    /// How often those that begin were given another group.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether all have ended that had begun when [`Registry::changes`] was `since`. If not, users that begin from here on belong to
    /// another group than they, as soon as that can be.
    pub fn have_ended(&mut self, since: u64) -> bool {
        if self.changes == since && !self.has_earlier() {
            self.group = 1 - self.group;
            self.changes += 1;
        }
        match self.changes - since {
            0 => false,
            1 => !self.has_earlier(),
            // Their group was taken again, which it is only once it is empty.
            _ => true,
        }
    }

    /// Whether any of the group before the present one have not ended.
    fn has_earlier(&self) -> bool {
        self.groups[usize::from(1 - self.group)] > 0
    }

    /// Removes an ended transaction.
    pub fn end(&mut self, mut state: Active) {
        self.leave_group(state.group);
        let slot = &mut self.slots[state.owner.0 as usize];
        (slot.first_lsn, slot.is_promised) = (Lsn::MAX, false);
        state.clear();
        self.spare.push(state);
    }

    /// The memory of all undo lists, used or not, in bytes.
    #[cfg(test)]
    pub fn memory_of_undo(&self) -> usize {
        self.slots.iter().map(|slot| slot.undo.borrow().memory_bytes()).sum()
    }

    /// Notes from where the transaction's records begin.
    pub fn set_first_lsn(&mut self, owner: Owner, lsn: Lsn) {
        self.slots[owner.0 as usize].first_lsn = lsn;
    }

    /// The transaction's records are not needed any more.
    pub fn clear_first_lsn(&mut self, owner: Owner) {
        self.slots[owner.0 as usize].first_lsn = Lsn::MAX;
    }

    /// Notes that the transaction ends and leaves work to the next restart, which will need its records.
    pub fn retain_log(&mut self, owner: Owner) {
        self.retained_lsn = self.retained_lsn.min(self.slots[owner.0 as usize].first_lsn);
    }

    /// The oldest log position that an active transaction, or the next restart, needs.
    pub fn first_lsn(&self) -> Option<Lsn> {
        let active = self.slots.iter().map(|slot| slot.first_lsn);
        Some(active.fold(self.retained_lsn, Lsn::min)).filter(|lsn| *lsn < Lsn::MAX)
    }

    /// From where a scan of the log finds all records of a transaction, if it has any.
    pub fn first_lsn_of(&self, owner: Owner) -> Option<Lsn> {
        Some(self.slots[owner.0 as usize].first_lsn).filter(|lsn| *lsn < Lsn::MAX)
    }

    /// Notes that the transaction's rollback fails.
    pub fn stall(&mut self, owner: Owner, cause: Error) {
        self.stalled.push((owner, cause));
    }

    /// The transaction's rollback is tried no more, or has succeeded.
    pub fn end_stall(&mut self, owner: Owner) {
        self.stalled.retain(|(stalled, _)| *stalled != owner);
    }

    /// Transactions whose rollback fails, and why.
    pub fn stalled(&self) -> &[(Owner, Error)] {
        &self.stalled
    }

    /// Why the rollback of the transaction fails whose records are the oldest in the log, if it does.
    pub fn oldest_stalled(&self) -> Option<(Lsn, Error)> {
        let oldest = self.stalled.iter().find(|(owner, _)| self.is_oldest(*owner))?;
        Some((self.first_lsn_of(oldest.0)?, oldest.1.clone()))
    }

    /// Notes that the log had no room for `bytes` of the transaction of this age.
    pub fn refuse(&mut self, began: u64, bytes: u64) {
        self.refused.retain(|(age, _)| *age != began);
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((began, bytes));
    }

    /// What the transaction of this age was refused when it was last run, if it was.
    pub fn take_refused(&mut self, began: u64) -> Option<u64> {
        let place = self.refused.iter().position(|(age, _)| *age == began)?;
        self.refused.remove(place).map(|(_, bytes)| bytes)
    }

    /// Notes that the transaction of this age gives way in the log to another one of its task, for which all of the log is kept or not.
    pub fn give_way_to_own(&mut self, began: u64, is_kept: bool) {
        if self.own_before.len() == REFUSED_MAX {
            self.own_before.pop_front();
        }
        self.own_before.push_back((began, is_kept));
    }

    /// Whether the transaction of this age has done so when it was last run, and all of the log was kept for the other one.
    pub fn take_own_before(&mut self, began: u64) -> Option<bool> {
        let place = self.own_before.iter().position(|(age, _)| *age == began)?;
        self.own_before.remove(place).map(|(_, is_kept)| is_kept)
    }

    /// Notes that room in the log is promised to the transaction until it ends.
    pub fn promise(&mut self, owner: Owner) {
        self.slots[owner.0 as usize].is_promised = true;
    }

    /// The other transactions that keep some of the log for themselves, or whose changes of sets (`changes_sets`) keep sweeps from it.
    pub fn keepers(&self, owner: Owner, changes_sets: impl Fn(Owner) -> bool) -> Vec<Owner> {
        let keeps = |(place, slot): (usize, &ActiveTransaction)| {
            let other = Owner(place as u32);
            let keeps = slot.first_lsn < Lsn::MAX || slot.is_promised || changes_sets(other);
            (other != owner && keeps).then_some(other)
        };
        self.slots.iter().enumerate().filter_map(keeps).collect()
    }

    /// Whether no transaction's records begin before this one's.
    pub fn is_oldest(&self, owner: Owner) -> bool {
        self.first_lsn() == Some(self.slots[owner.0 as usize].first_lsn)
    }

    /// Every owner, and what its transaction has to take back.
    pub fn undo_lists(&self) -> Vec<(Owner, Rc<RefCell<UndoList>>)> {
        let owners = (0..).map(Owner);
        owners.zip(self.slots.iter().map(|slot| Rc::clone(&slot.undo))).collect()
    }
}
