//! How transactions and clients end: commits, rollbacks, victims of deadlocks, broken connections.

use super::directory::{Waiting, all_of};
use super::{Action, Memory, Misbehaviour, Server, Writer, deadlock, misbehaved};
use crate::algorithm::Noted;
use crate::message::{Answer, ClientId, Copy, Image, LIST_MAX, Request, SIZE_MAX, SetWrite, Transaction, WaitsFor};
use base::PageId;
use engine::canary::{self, Canary};
use std::collections::BTreeSet;

impl Server {
    /// A client asks for a commit.
    pub(super) fn ask_commit(
        &mut self,
        client: ClientId,
        commit: Request,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let Request::Commit { transaction, others, keeps, records, pages, redone, sets } = commit else {
            return Ok(());
        };
        let changed: Vec<PageId> = pages.iter().map(|image| image.page).chain(redone.iter().copied()).collect();
        let sent: usize = pages.iter().map(|image| image.bytes.len()).sum();
        // A page on which records are redone takes as much memory as one that has come.
        let of_sets: usize = sets.iter().map(SetWrite::length).sum();
        let bytes = records.len() + sent + redone.len() * memory.page_size() + of_sets;
        let sent = (&pages[..], &redone[..]);
        let begun = self.begin_commit((client, transaction), (&others, keeps), bytes, sent, actions);
        if begun.is_err() {
            // What its transactions have waited for in sets they do not any more.
            self.advance_ranges(memory, actions);
        }
        let by_records = begun?;
        let members: Vec<Transaction> = others.into_iter().chain([transaction]).collect();
        self.withdraw_writes(client, &members, memory, actions);
        changed.iter().filter(|_| keeps).for_each(|page| self.advance(*page, memory, actions));
        actions.push(Action::Commit { client, transaction, records, pages, redone, by_records, sets });
        if canary::is_planted(Canary::EarlyRelease) {
            self.release((client, transaction), memory, actions);
        }
        Ok(())
    }

    /// The transactions that a commit is of are one from now on, under the name of the first. Returns the pages of which they have locks
    /// of records alone: such a page comes without its bytes, for others change other records of it.
    fn begin_commit(
        &mut self,
        (client, transaction): (ClientId, Transaction),
        (others, keeps): (&[Transaction], bool),
        bytes: usize,
        (pages, redone): (&[Image], &[PageId]),
        actions: &mut Vec<Action>,
    ) -> Result<BTreeSet<PageId>, Misbehaviour> {
        let joined = self.clients.get_mut(&client).filter(|joined| joined.committing + bytes <= SIZE_MAX);
        let Some(joined) = joined else {
            return Err(misbehaved(client, "more to commit than a message may have, and not only", PageId::default()));
        };
        let members: BTreeSet<Transaction> = others.iter().copied().chain([transaction]).collect();
        let is_committing = |member| self.writers.get(&(client, member)).is_some_and(|writer| writer.is_committing);
        if members.iter().any(|member| is_committing(*member)) {
            return Err(misbehaved(client, "committed twice a transaction, and not", PageId::default()));
        }
        joined.committing += bytes;
        let mut all = Writer::default();
        for member in &members {
            self.directory.end_waits_within(client, Some(*member));
            let writer = self.writers.remove(&(client, *member)).unwrap_or_default();
            all.pages.extend(writer.pages);
            self.directory.pass_records((client, *member), (client, transaction));
            self.directory.ranges.pass((client, *member), (client, transaction));
        }
        let (mut seen, mut by_records) = (BTreeSet::new(), BTreeSet::new());
        let mut odd = None;
        let images = pages.iter().map(|image| (image.page, true));
        for (page, is_whole) in images.chain(redone.iter().map(|page| (*page, false))) {
            if !all.pages.contains(&page) && self.take_kept(client, page) {
                all.pages.insert(page);
            }
            let is_locked = all.pages.contains(&page);
            if !is_locked && !is_whole && self.directory.changes_records((client, transaction), page) {
                by_records.insert(page);
            }
            if !(is_locked || by_records.contains(&page)) || !seen.insert(page) {
                odd.get_or_insert(page);
            }
        }
        for page in &all.pages {
            let entry = self.directory.entry(*page);
            (entry.writer, entry.is_kept) = (Some((client, transaction)), keeps && seen.contains(page));
            if let Some(held) = entry.copies.get_mut(&client) {
                held.users.retain(|user| !members.contains(&user));
            }
            // Readers wait for the end of the commit now, not for a lock that is kept.
            let stays = entry.withdraw_callbacks().into_iter();
            let told =
                stays.map(|(to, number)| Action::Send(to, Answer::Withdrawn { copy: Copy { page: *page, number } }));
            actions.extend(told);
        }
        (all.is_committing, all.bytes, all.keeps) = (odd.is_none(), bytes, keeps);
        all.changed = seen.into_iter().collect();
        self.writers.insert((client, transaction), all);
        odd.map_or(Ok(by_records), |page| Err(misbehaved(client, "committed without a write lock, or twice,", page)))
    }

    /// A client that keeps the write lock of a page uses it to commit. False if it has none.
    fn take_kept(&mut self, client: ClientId, page: PageId) -> bool {
        let keeper = self.directory.get(page).filter(|entry| entry.is_kept).and_then(|entry| entry.writer);
        let Some(owner) = keeper.filter(|owner| owner.0 == client) else { return false };
        let Some(writer) = self.writers.get_mut(&owner).filter(|writer| !writer.is_committing) else { return false };
        let was_its = writer.pages.remove(&page);
        if writer.pages.is_empty() {
            self.writers.remove(&owner);
        }
        was_its
    }

    /// A commit is durable and its pages are installed.
    pub fn committed(
        &mut self,
        (client, transaction): (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.counts.commits += 1;
        let changed = self.writers.get_mut(&(client, transaction)).map(|writer| std::mem::take(&mut writer.changed));
        changed.into_iter().flatten().for_each(|page| self.placement.note(Noted::Changed(page)));
        if let Some(joined) = self.clients.get_mut(&client).filter(|joined| !joined.is_gone) {
            joined.last_committed = Some(transaction);
            joined.active = self.now;
            actions.push(Action::Send(client, Answer::Committed { transaction }));
        }
        if self.writers.get(&(client, transaction)).is_some_and(|writer| writer.keeps) {
            self.keep_locks((client, transaction), memory, actions);
        } else {
            self.release((client, transaction), memory, actions);
        }
        self.release_records((client, transaction), memory, actions);
        self.end_gone(client, memory, actions);
    }

    /// A client keeps the write locks of the pages that it has committed.
    fn keep_locks(&mut self, owner: (ClientId, Transaction), memory: &dyn Memory, actions: &mut Vec<Action>) {
        let Some(mut ended) = self.writers.remove(&owner) else { return };
        let is_kept = |page: &PageId| self.directory.get(*page).is_some_and(|entry| entry.is_kept);
        let released = ended.pages.iter().copied().filter(|page| !is_kept(page)).collect();
        let mut kept = Writer { pages: std::mem::replace(&mut ended.pages, released), ..Writer::default() };
        kept.pages.retain(|page| !ended.pages.contains(page));
        let over = self.end_locks(owner, ended);
        if !kept.pages.is_empty() {
            self.writers.insert(owner, kept);
        }
        for page in over {
            self.withdraw_callbacks(page, actions);
            self.advance(page, memory, actions);
        }
    }

    /// A commit is refused, and nothing of it was done. One whose outcome is unknown until the server is started again never ends: its
    /// pages stay locked.
    pub fn not_committed(
        &mut self,
        (client, transaction): (ClientId, Transaction),
        reason: String,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.counts.refused_commits += 1;
        if self.has_joined(client) {
            actions.push(Action::Send(client, Answer::NotCommitted { transaction, reason }));
        }
        self.release((client, transaction), memory, actions);
        self.release_records((client, transaction), memory, actions);
        self.end_gone(client, memory, actions);
    }

    /// What becomes of a commit is not known before the next start. The log has failed, so nothing is committed behind it either.
    pub fn note_undecided(&mut self, owner: (ClientId, Transaction), memory: &dyn Memory, actions: &mut Vec<Action>) {
        self.counts.undecided_commits += 1;
        self.writers.get_mut(&owner).into_iter().for_each(|writer| writer.is_undecided = true);
        self.end_gone(owner.0, memory, actions);
    }

    /// A page that a client waits for cannot be read, or its file has no room for it. The copy stays: the client may have got the page from another one. It says so if
    /// it has not.
    pub fn failed(
        &mut self,
        client: ClientId,
        copy: Copy,
        (is_full, reason): (bool, String),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        if self.directory.holds(client, copy) {
            actions.push(Action::Send(client, Answer::Failed { copy, is_denied: false, is_full, reason }));
            if canary::is_planted(Canary::ForgottenCopy) {
                self.directory.remove(client, copy);
                self.advance(copy.page, memory, actions);
            }
        }
    }

    pub(super) fn abort(
        &mut self,
        owner: (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        if self.writers.get(&owner).is_some_and(|writer| writer.is_committing) {
            return Err(misbehaved(owner.0, "rolled back what it commits, and not", PageId::default()));
        }
        self.directory.end_waits_within(owner.0, Some(owner.1));
        self.withdraw_writes(owner.0, &[owner.1], memory, actions);
        self.release(owner, memory, actions);
        self.release_records(owner, memory, actions);
        Ok(())
    }

    /// A transaction's write locks are over.
    pub(super) fn release(&mut self, owner: (ClientId, Transaction), memory: &dyn Memory, actions: &mut Vec<Action>) {
        for page in self.end_writer(owner) {
            self.withdraw_callbacks(page, actions);
            self.advance(page, memory, actions);
        }
    }

    /// Strikes out a transaction's write locks and returns their pages.
    fn end_writer(&mut self, owner: (ClientId, Transaction)) -> BTreeSet<PageId> {
        let writer = self.writers.remove(&owner).unwrap_or_default();
        self.end_locks(owner, writer)
    }

    fn end_locks(&mut self, owner: (ClientId, Transaction), writer: Writer) -> BTreeSet<PageId> {
        if let Some(joined) = self.clients.get_mut(&owner.0) {
            joined.committing -= writer.bytes;
        }
        for page in &writer.pages {
            let entry = self.directory.entry(*page);
            (entry.writer, entry.is_kept) = (None, false);
            if let Some(held) = entry.copies.get_mut(&owner.0) {
                held.users.remove(owner.1);
            }
        }
        writer.pages
    }

    /// One of a transaction's write locks is over, or one that its client keeps.
    pub(super) fn end_write(&mut self, owner: (ClientId, Transaction), page: PageId) {
        let entry = self.directory.entry(page);
        (entry.writer, entry.is_kept) = (None, false);
        if let Some(writer) = self.writers.get_mut(&owner) {
            writer.pages.remove(&page);
            if writer.pages.is_empty() {
                self.writers.remove(&owner);
            }
        }
    }

    /// A client says which of its transactions wait for which others of its own.
    pub(super) fn note_waits(
        &mut self,
        client: ClientId,
        pairs: &[WaitsFor],
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.wait_within(client, pairs);
        let waiting = pairs.iter().map(|pair| (client, pair.transaction)).collect();
        self.end_deadlocks(&waiting, memory, actions);
    }

    /// Ends the deadlocks that these transactions are part of.
    pub(super) fn end_deadlocks(
        &mut self,
        of: &BTreeSet<(ClientId, Transaction)>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        let mut victims = None;
        // What is granted then may close others.
        while !self.is_gathering && victims.replace(self.counts.victims) != Some(self.counts.victims) {
            let owners = deadlock::on_cycles(&self.directory, of);
            owners.into_iter().for_each(|owner| self.end_deadlock(owner, memory, actions));
        }
    }

    /// Requests of a client's transactions for write locks and for records are taken out of the queues, all before anything is granted: none
    /// of them gets what another one of them has waited for. What they have asked to read comes all the same: their client has made room for
    /// that, and another transaction of it may wait for the page. It is theirs no longer: one that has the page and waits for them is in no deadlock.
    pub(super) fn withdraw_writes(
        &mut self,
        client: ClientId,
        transactions: &[Transaction],
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        let mut pages = BTreeSet::new();
        for owner in transactions.iter().map(|transaction| (client, *transaction)) {
            self.directory.ranges.withdraw(owner);
            for page in self.directory.waits_of(owner) {
                let is_changed = self.directory.disown_read(page, owner);
                let is_meant = |waiting: &Waiting| waiting.owner() == owner && !waiting.kind.reads();
                let is_taken = !self.take_requests(page, is_meant, actions).is_empty();
                pages.extend((is_changed || is_taken).then_some(page));
            }
        }
        pages.into_iter().for_each(|page| self.advance(page, memory, actions));
        self.advance_ranges(memory, actions);
    }

    /// A transaction's requests are taken out of the queues. Returns the copies that were to be read.
    fn withdraw(
        &mut self,
        owner: (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Vec<Copy> {
        let mut reads = Vec::new();
        self.directory.ranges.withdraw(owner);
        for page in self.directory.waits_of(owner) {
            let gone = self.take_requests(page, |waiting| waiting.owner() == owner, actions);
            reads.extend(gone.into_iter().filter(|waiting| waiting.kind.reads()).map(|waiting| waiting.copy));
            self.advance(page, memory, actions);
        }
        reads
    }

    /// Ends the deadlock that a transaction is part of, if there is one: as many victims as that takes. While no write lock is granted
    /// at all that would lead to the same one again, so it waits, too.
    pub(super) fn end_deadlock(
        &mut self,
        from: (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        while !self.is_gathering
            && let Some(victim) = deadlock::victim(&self.directory, from)
        {
            self.make_victim(victim, memory, actions);
        }
    }

    /// Rolls a transaction back, which waits for nothing any more.
    pub(super) fn make_victim(
        &mut self,
        victim: (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.counts.victims += 1;
        self.directory.end_waits_within(victim.0, Some(victim.1));
        let withdrawn = self.withdraw(victim, memory, actions);
        actions.push(Action::Send(victim.0, Answer::Victim { transaction: victim.1, withdrawn }));
        self.advance_ranges(memory, actions);
    }

    /// A client's lease is over, and it is given up next. One whose rights were changed is not listened to.
    pub fn note_unheard(&mut self, client: ClientId) {
        let is_listened_to = self.clients.get(&client).is_some_and(|joined| !joined.is_revoked);
        self.counts.unheard += u64::from(is_listened_to && self.directory.held_by(client) > 0);
    }

    /// A client is gone: its copies, its requests and what it has not committed. Commits that have begun go on to their end, and it keeps
    /// its copies until then, unless that is not known before the next start: what others change of what its transactions have looked at is to come behind them.
    pub fn lose(&mut self, client: ClientId, memory: &dyn Memory, actions: &mut Vec<Action>) {
        let Some(joined) = self.clients.get_mut(&client) else { return };
        let was_gone = std::mem::replace(&mut joined.is_gone, true);
        joined.is_revoked = true;
        let has_commits = self.has_commits(client);
        self.counts.gone_committing += u64::from(has_commits && !was_gone);
        // Nothing is granted before all of it is gone, so that nothing is granted to it, nor asked of it.
        let mut pages = self.silence(client, actions);
        self.snapshots.close_all(client);
        for (_, writer) in self.writers.range_mut(all_of(client)) {
            writer.keeps = false;
        }
        let owned = self.writers.range(all_of(client)).filter(|(_, writer)| !writer.is_committing);
        let owned: Vec<_> = owned.map(|(owner, _)| *owner).collect();
        owned.into_iter().for_each(|owner| pages.extend(self.end_writer(owner)));
        if !has_commits || canary::is_planted(Canary::ForgottenReads) {
            for copy in self.directory.copies_of(client) {
                self.directory.strike_out(client, copy.page);
                pages.insert(copy.page);
            }
            self.clients.remove(&client);
        }
        for owner in self.directory.record_owners(client) {
            if !self.writers.get(&owner).is_some_and(|writer| writer.is_committing) {
                let unlocked = self.directory.unlock_records(owner);
                unlocked.iter().for_each(|page| self.withdraw_callbacks(*page, actions));
                pages.extend(unlocked);
            }
        }
        for owner in self.directory.ranges.owners_of(client) {
            if !self.writers.get(&owner).is_some_and(|writer| writer.is_committing) {
                self.directory.ranges.end(owner);
            }
        }
        if !self.clients.contains_key(&client) {
            pages.extend(self.end_undecided(client, memory, actions));
        }
        pages.into_iter().for_each(|page| self.advance(page, memory, actions));
        self.advance_ranges(memory, actions);
    }

    /// Commits of a client that is gone, of which nothing is known before the next start, keep what they change. What else they have locked is
    /// free, for nothing is committed behind them. Returns the pages.
    fn end_undecided(&mut self, client: ClientId, memory: &dyn Memory, actions: &mut Vec<Action>) -> BTreeSet<PageId> {
        let undecided = self.writers.range_mut(all_of(client)).filter(|(_, writer)| writer.is_undecided);
        let (mut pages, mut owners) = (BTreeSet::new(), Vec::new());
        for (owner, writer) in undecided {
            let changed: BTreeSet<PageId> = writer.changed.iter().copied().collect();
            pages.extend(writer.pages.difference(&changed));
            writer.pages.retain(|page| changed.contains(page));
            owners.push((*owner, changed));
        }
        for page in &pages {
            self.directory.entry(*page).writer = None;
        }
        for (owner, changed) in owners {
            self.directory.ranges.end_reads(owner);
            // Records of sets are on no pages: those that are locked for a change are taken for changed.
            let is_changed = |page: PageId| changed.contains(&page) || memory.is_set(page.partition);
            pages.extend(self.directory.unlock_unchanged(owner, is_changed));
        }
        pages.iter().for_each(|page| self.withdraw_callbacks(*page, actions));
        pages
    }

    /// Whether commits of a client are under way that come to an end.
    fn has_commits(&self, client: ClientId) -> bool {
        let is_under_way = |writer: &Writer| writer.is_committing && !writer.is_undecided;
        self.writers.range(all_of(client)).any(|(_, writer)| is_under_way(writer))
    }

    /// A commit of a client has ended, or never does. If that is gone, and this was the last one, its copies go, too.
    fn end_gone(&mut self, client: ClientId, memory: &dyn Memory, actions: &mut Vec<Action>) {
        if self.clients.get(&client).is_some_and(|joined| joined.is_gone) && !self.has_commits(client) {
            self.lose(client, memory, actions);
        }
    }

    /// A client is heard no more, and nothing is sent to it. What it has stays in others' way until its lease is over: it may use its
    /// copies until then, and a server that is started again believes that they are the latest.
    pub fn revoke(&mut self, client: ClientId, memory: &dyn Memory, actions: &mut Vec<Action>) {
        let Some(joined) = self.clients.get_mut(&client) else { return };
        joined.is_revoked = true;
        self.snapshots.close_all(client);
        for page in self.silence(client, actions) {
            self.advance(page, memory, actions);
        }
        self.advance_ranges(memory, actions);
    }

    /// Takes back what a client asks for, and what is asked of it: those to whom it was to send pages ask again for what has not come.
    /// Returns the pages that it has waited for.
    fn silence(&mut self, client: ClientId, actions: &mut Vec<Action>) -> BTreeSet<PageId> {
        self.directory.ranges.withdraw_all(client);
        self.directory.end_waits_within(client, None);
        let waiting = self.directory.waiting_transactions(client).into_iter();
        let pages: BTreeSet<PageId> = waiting.flat_map(|owner| self.directory.waits_of(owner)).collect();
        for page in &pages {
            self.take_requests(*page, |waiting| waiting.client == client, actions);
        }
        for (to, copies) in self.directory.sent_by(client) {
            let lists = copies.chunks(LIST_MAX).map(|copies| Answer::AskAgain { copies: copies.to_vec() });
            actions.extend(lists.map(|again| Action::Send(to, again)));
        }
        pages
    }
}
