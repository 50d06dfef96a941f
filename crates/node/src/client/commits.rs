//! How transactions of a node end. One that commits joins the others that do so at the time: they are sent together, in one message,
//! when the server has answered those before. Its locks in the node are over when it joins them; so others there read and change what it has
//! changed, and are committed with it or behind it. What they have seen is acknowledged when it is.

use super::{Client, Lock, LockHolder, Place, Restored};
use crate::message::{Copy, Image, Request, SetWrite, ToServer, Transaction};
use base::PageId;
use engine::canary::{self, Canary};
use std::collections::BTreeSet;

/// Transactions that are committed together.
#[derive(Debug, Default)]
struct CommitGroup {
    members: Vec<Transaction>,
    /// What they have changed.
    changed: BTreeSet<PageId>,
    /// The pages that they have looked at or have write locks of. These stay until the answer: a snapshot that shows what another node changes
    /// there behind this commit has to show this one, too.
    used: BTreeSet<PageId>,
}

/// Those that are to be sent, and those that were and are not answered.
#[derive(Debug, Default)]
pub(super) struct Commits {
    open: CommitGroup,
    sent: Option<CommitGroup>,
}

impl Commits {
    /// Whether what is not answered has changed the page.
    pub fn has_changed(&self, page: PageId) -> bool {
        self.open.changed.contains(&page) || self.sent.as_ref().is_some_and(|sent| sent.changed.contains(&page))
    }

    /// Whether what is not answered has changed the page, has its write lock, or has looked at it.
    pub fn has(&self, page: PageId) -> bool {
        let has = |group: &CommitGroup| group.changed.contains(&page) || group.used.contains(&page);
        has(&self.open) || self.sent.as_ref().is_some_and(has)
    }
}

impl Client {
    /// A transaction that has changed these pages is to be committed, with the next that are sent. Its locks in the node are over.
    pub fn join_commit(&mut self, transaction: Transaction, changed: impl IntoIterator<Item = PageId>) {
        let pages = self.uses.remove(&transaction).unwrap_or_default();
        let open = &mut self.commits.open;
        open.members.push(transaction);
        open.changed.extend(changed);
        for page in &pages {
            let Some(held) = self.copies.get(page) else { continue };
            // A lock that it has asked for may be on its way.
            if held.lock.is_of(transaction) || held.was_here {
                self.commits.open.used.insert(*page);
            }
        }
        self.end_locks(transaction, pages);
    }

    /// What to say to commit those that have joined: with their log records, pages that they have changed, and the others' names.
    ///
    /// # Panics
    /// If nothing has joined, or those before are not answered.
    pub fn send_commit(
        &mut self,
        records: Vec<u8>,
        (pages, redone): (Vec<Image>, Vec<PageId>),
        sets: Vec<SetWrite>,
    ) -> (Transaction, ToServer) {
        assert!(self.commits.sent.is_none(), "commits are answered one after the other");
        let group = std::mem::take(&mut self.commits.open);
        let (transaction, others) = group.members.split_first().expect("there is something to commit");
        let (transaction, others) = (*transaction, others.to_vec());
        self.commits.sent = Some(group);
        let commit = Request::Commit { transaction, others, keeps: self.keeps, records, pages, redone, sets };
        (transaction, self.message(commit))
    }

    /// The server has committed what was sent. Its write locks are over, or the node's.
    pub fn committed(&mut self) {
        let Some(group) = self.commits.sent.take() else { return };
        for page in &group.changed {
            self.copies.get_mut(page).into_iter().for_each(|held| held.since = self.snapshots.now());
        }
        group.members.iter().for_each(|member| self.records.end_locks(*member));
        for page in &group.used {
            let Some(held) = self.copies.get_mut(page) else { continue };
            if group.members.iter().any(|member| held.lock.is_of(*member)) {
                held.lock = if self.keeps && group.changed.contains(page) { Lock::Kept } else { Lock::Shared };
            }
        }
        group.changed.union(&group.used).for_each(|page| self.end_use(*page));
    }

    /// Nothing of what was sent is committed, and so nothing of what has joined since. Their pages go when no transaction uses them.
    pub fn refused(&mut self) {
        let groups = [self.commits.sent.take(), Some(std::mem::take(&mut self.commits.open))];
        for (index, group) in groups.into_iter().enumerate() {
            let Some(group) = group else { continue };
            group.members.iter().for_each(|member| self.records.end_locks(*member));
            for page in &group.used {
                if let Some(held) = self.copies.get_mut(page)
                    && group.members.iter().any(|member| held.lock.is_of(*member))
                {
                    held.lock = Lock::Shared;
                }
            }
            // Of those that were not sent the server knows only that they have write locks.
            if index == 1 {
                for transaction in group.members {
                    let message = self.message(Request::Abort { transaction });
                    self.due.messages.push(message);
                }
            }
            group.changed.iter().for_each(|page| self.spoil(*page));
            group.used.difference(&group.changed).for_each(|page| self.end_use(*page));
        }
    }

    /// A transaction is committed that has changed nothing: the server has to know only that it has no write lock any more.
    pub fn committed_unchanged(&mut self, transaction: Transaction) {
        self.give_locks_back(transaction);
        let pages = self.uses.remove(&transaction).unwrap_or_default();
        for page in &pages {
            if let Some(held) = self.copies.get_mut(page)
                && held.lock.is_of(transaction)
            {
                held.lock = Lock::Shared;
            }
        }
        self.end_locks(transaction, pages);
    }

    /// Says that the transaction neither has nor wants write locks any more, if it does.
    fn give_locks_back(&mut self, transaction: Transaction) {
        let mut pages = self.uses.get(&transaction).into_iter().flatten();
        if self.records.has_any(transaction)
            || pages.any(|page| self.copies.get(page).is_some_and(|held| held.lock.is_of(transaction)))
        {
            let message = self.message(Request::Abort { transaction });
            self.due.messages.push(message);
        }
        self.records.end_locks(transaction);
    }

    /// A transaction is rolled back that has changed these pages: they are dropped, but for those that are to be as those left them that
    /// are committed and not answered. Of what those have only looked at the copies stay, and the bytes do not.
    pub fn aborted(&mut self, transaction: Transaction, changed: &BTreeSet<PageId>) -> Restored {
        self.give_locks_back(transaction);
        let mut restored = Restored::new();
        let pages = self.uses.remove(&transaction).unwrap_or_default();
        for page in &pages {
            let Some(held) = self.copies.get_mut(page) else { continue };
            if held.lock.is_of(transaction) {
                held.lock = Lock::Shared;
            }
            if !changed.contains(page) {
                continue;
            }
            if self.commits.has_changed(*page) && !canary::is_planted(Canary::UndoneTogether) {
                restored.push(*page);
                continue;
            }
            if self.commits.has(*page) {
                held.place = Place::Left;
                self.due.discards.push(*page);
                continue;
            }
            let (copy, is_called) = (Copy { page: *page, number: held.number }, held.is_called);
            self.copies.remove(page);
            self.due.discards.push(*page);
            if is_called {
                self.locks.end(LockHolder::Callback(*page));
                let message = self.message(Request::CalledBack { copy });
                self.due.messages.push(message);
            } else {
                self.drops.push(copy);
            }
        }
        self.end_locks(transaction, pages);
        restored
    }

    /// A transaction has no locks in the node any more, and has used these pages.
    fn end_locks(&mut self, transaction: Transaction, pages: BTreeSet<PageId>) {
        self.waiting.remove(&transaction);
        self.awaited.remove(&transaction);
        self.records.end_uses(transaction);
        self.locks.end(LockHolder::Transaction(transaction));
        pages.into_iter().for_each(|page| self.end_use(page));
    }

    /// One transaction fewer uses a page: one that was called back is given up if it was the last one, one that has left the memory is
    /// dropped.
    fn end_use(&mut self, page: PageId) {
        self.advance();
        self.end_request(page);
        self.try_give_up(page);
        if self.is_used(page) || self.commits.has(page) {
            return;
        }
        if let Some(held) = self.copies.get(&page).filter(|held| held.place == Place::Left) {
            self.drops.push(Copy { page, number: held.number });
            self.copies.remove(&page);
        }
    }
}
