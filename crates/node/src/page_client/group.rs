//! Transactions that are committed together: their log records one behind the other, and each page as the last of them has left it, or
//! only its name: then the server redoes the records.
//!
//! One group is on its way at a time; those that commit meanwhile are the next one. What a group has changed stays in the buffer until the
//! server has answered. Others may change the pages already: the first that does has the bytes copied before, for its changes may be taken
//! back.

use super::{ClientNode, PageTransaction};
use crate::message::{Image, LIST_MAX, Request, SIZE_MAX, Session, SetWrite, Transaction};
use base::PageId;
use engine::page::{Change, header};
use executor::Turn;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most bytes of a commit: what else its message has, is less.
pub(super) const COMMIT_MAX: usize = SIZE_MAX - (2 << 20);
/// More than the bytes that a page has in a message beside its own.
const PER_PAGE: usize = 32;

/// What becomes of a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupOutcome {
    /// The server has not answered, or nothing was sent.
    Open,
    Committed,
    /// Nothing of it is committed, says the server.
    Refused(String),
    /// The server was lost before it was sent.
    Unsent(String),
    /// The server was lost before it has answered.
    Lost {
        session: Session,
        name: Transaction,
        cause: String,
    },
}

#[derive(Default)]
struct Group {
    fate: OutcomeOfGroup,
    /// The name that it was sent under.
    name: Option<Transaction>,
    members: usize,
    records: Vec<u8>,
    pages: BTreeMap<PageId, GroupPage>,
    /// Pages of which they have changed records by locks of their own: their copies, if any, are not theirs.
    updated: BTreeSet<PageId>,
    /// What they have changed in sets, and its bytes.
    sets: Vec<SetWrite>,
    bytes_of_sets: usize,
}

/// What the members of a group, and those that have seen what it has changed, look at.
#[derive(Clone)]
pub(super) struct OutcomeOfGroup(Rc<RefCell<GroupOutcome>>);

impl Default for OutcomeOfGroup {
    fn default() -> OutcomeOfGroup {
        OutcomeOfGroup(Rc::new(RefCell::new(GroupOutcome::Open)))
    }
}

impl OutcomeOfGroup {
    pub fn get(&self) -> GroupOutcome {
        self.0.borrow().clone()
    }

    /// Whether what it has changed is lost, or may be.
    pub fn has_failed(&self) -> bool {
        !matches!(*self.0.borrow(), GroupOutcome::Open | GroupOutcome::Committed)
    }

    pub fn is(&self, other: &OutcomeOfGroup) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// A page as the last member has left it that has changed it, and the frame in which it is pinned.
struct GroupPage {
    frame: u32,
    /// Its bytes, once they may differ from those in the frame.
    bytes: Option<Vec<u8>>,
    redo: RedoCost,
}

/// What it would take to redo the changes of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RedoCost {
    /// The bytes of the log records that change it.
    bytes: usize,
    /// Whether it was formatted: the server may not have it, and needs nothing that it has.
    is_formatted: bool,
}

impl RedoCost {
    /// A change more, whose record has this many bytes.
    pub fn add(&mut self, change: &Change<'_>, bytes: usize) {
        self.bytes += bytes;
        self.is_formatted |= change.is_format();
    }

    pub fn is_formatted(self) -> bool {
        self.is_formatted
    }

    fn add_all(&mut self, more: RedoCost) {
        self.bytes += more.bytes;
        self.is_formatted |= more.is_formatted;
    }

    /// Whether it is more than to take the page as it is.
    fn exceeds_page(self, page_size: usize) -> bool {
        self.is_formatted || self.bytes > page_size
    }
}

/// The group that is joined by those that commit, and the one that is on its way.
#[derive(Default)]
pub(super) struct Groups {
    open: RefCell<Group>,
    sent: RefCell<Option<Group>>,
    /// Whose transaction joins next: so none that is too large for the group that is joined now is passed by those that are not.
    pub joining: Turn,
}

impl Groups {
    /// The group that has changed the page last, of those that are not answered.
    pub fn of_page(&self, page: PageId) -> Option<OutcomeOfGroup> {
        let open = self.open.borrow();
        if open.pages.contains_key(&page) {
            return Some(open.fate.clone());
        }
        let sent = self.sent.borrow();
        sent.as_ref().filter(|sent| sent.pages.contains_key(&page)).map(|sent| sent.fate.clone())
    }

    /// Whether these bytes of records, and these numbers of pages and of changes of sets, may be added to the group that is joined now, which
    /// has `together` pages at most unless they are of one: the server needs frames for all of them at a time.
    pub fn has_room(
        &self,
        (records, pages, of_sets): (usize, usize, usize),
        (page_size, together): (usize, usize),
    ) -> bool {
        let open = self.open.borrow();
        let records = open.records.len() + open.bytes_of_sets + records;
        let (pages, of_sets) = (open.pages.len() + open.updated.len() + pages, open.sets.len() + of_sets);
        let most = if open.members == 0 { LIST_MAX } else { together.min(LIST_MAX) };
        let is_bounded = pages <= most && open.members.max(of_sets) <= LIST_MAX;
        length_of_commit(records, pages, page_size) <= COMMIT_MAX && is_bounded
    }
}

/// The bytes of a commit of its own.
pub(super) fn length_of_commit(records: usize, pages: usize, page_size: usize) -> usize {
    records + pages * (page_size + PER_PAGE)
}

impl ClientNode {
    /// A transaction is committed with the next group. What it has changed is the group's from here on.
    pub(super) fn join_group(&self, transaction: &PageTransaction) -> OutcomeOfGroup {
        let mut open = self.groups.open.borrow_mut();
        let mut pool = self.buffer.pool().borrow_mut();
        let mut work = transaction.work.borrow_mut();
        for (page, redo) in &work.changed {
            self.changing.borrow_mut().remove(page);
            match open.pages.get_mut(page) {
                Some(member) => {
                    member.bytes = None;
                    member.redo.add_all(*redo);
                }
                None => {
                    let frame = work.pinned[page];
                    pool.pin(frame);
                    open.pages.insert(*page, GroupPage { frame, bytes: None, redo: *redo });
                }
            }
        }
        open.records.append(&mut work.records);
        open.updated.append(&mut work.updated);
        let sets = open.sets.len();
        open.sets.extend(work.sets.writes());
        open.bytes_of_sets += open.sets[sets..].iter().map(SetWrite::length).sum::<usize>();
        open.members += 1;
        let fate = open.fate.clone();
        drop((open, pool));
        fate
    }

    /// A transaction is about to change a page that others may have left so, which are committed and not answered.
    pub(super) fn keep_for_rollbacks(&self, page: PageId, bytes: &[u8]) {
        let (mut open, mut sent) = (self.groups.open.borrow_mut(), self.groups.sent.borrow_mut());
        if let Some(member) = open.pages.get_mut(&page).or_else(|| sent.as_mut()?.pages.get_mut(&page)) {
            member.bytes.get_or_insert_with(|| bytes.to_vec());
        }
    }

    /// Sends the group that is joined now, if none is on its way.
    pub(super) fn send_group(&self) {
        let mut sent = self.groups.sent.borrow_mut();
        if sent.is_some() || self.groups.open.borrow().members == 0 {
            return;
        }
        let mut group = self.groups.open.take();
        let (mut images, mut redone) = (Vec::new(), Vec::from_iter(std::mem::take(&mut group.updated)));
        let (pool, page_size) = (self.buffer.pool().borrow(), self.settings.buffer.page_size);
        for (page, member) in &mut group.pages {
            if self.settings.commits_pages || member.redo.exceeds_page(page_size) {
                let mut bytes = member.bytes.take().unwrap_or_else(|| pool.bytes(member.frame).to_vec());
                header::seal(&mut bytes);
                images.push(Image { page: *page, bytes });
            } else {
                redone.push(*page);
            }
        }
        drop(pool);
        let records = std::mem::take(&mut group.records);
        let (name, message) =
            self.protocol.borrow_mut().send_commit(records, (images, redone), std::mem::take(&mut group.sets));
        self.say(&message);
        // Others of the node run now, and the server works meanwhile.
        self.to_server.borrow().flush();
        if let Request::Commit { pages, .. } = message.body {
            for image in pages {
                group.pages.get_mut(&image.page).expect("it is the group's").bytes = Some(image.bytes);
            }
        }
        group.name = Some(name);
        *sent = Some(group);
    }

    /// The server has answered the commit of this name, and refused it if there is a reason.
    pub(super) fn end_group(&self, name: Transaction, refusal: Option<String>) {
        if self.groups.sent.borrow().as_ref().and_then(|sent| sent.name) != Some(name) {
            return;
        }
        match refusal {
            None => self.end_committed(),
            Some(reason) => self.fail_groups(&GroupOutcome::Refused(reason.clone()), GroupOutcome::Refused(reason)),
        }
        self.send_group();
    }

    fn end_committed(&self) {
        let Some(group) = self.groups.sent.take() else { return };
        self.release_frames(&group);
        self.protocol.borrow_mut().committed();
        self.advance();
        group.fate.0.replace(GroupOutcome::Committed);
        self.answered.wake_all(&self.executor);
        // Write locks are over that others of the node wait for.
        self.bell.wake_all(&self.executor);
    }

    /// The frames of its pages are clean, but for those that are changed again.
    fn release_frames(&self, group: &Group) {
        let (open, changing) = (self.groups.open.borrow(), self.changing.borrow());
        let mut pool = self.buffer.pool().borrow_mut();
        for (page, member) in &group.pages {
            pool.unpin(member.frame);
            if !open.pages.contains_key(page) && !changing.contains(page) {
                pool.note_written(member.frame);
            }
        }
    }

    /// A running transaction has taken back all that it had changed of a page: its frame is clean, but for what is not answered.
    pub(super) fn note_unchanged(&self, page: PageId, frame: u32) {
        self.changing.borrow_mut().remove(&page);
        if self.groups.of_page(page).is_none() {
            self.buffer.pool().borrow_mut().note_written(frame);
        }
    }

    /// Nothing is, or may be, committed of the group that is on its way, and so nothing of the one that is joined now.
    fn fail_groups(&self, of_sent: &GroupOutcome, of_open: GroupOutcome) {
        let (sent, open) = (self.groups.sent.take(), self.groups.open.take());
        for group in sent.iter().chain([&open]) {
            self.release_frames(group);
            self.forget_begun(|page| group.pages.get(&page).is_some_and(|member| member.redo.is_formatted()));
        }
        self.protocol.borrow_mut().refused();
        self.advance();
        sent.inspect(|sent| drop(sent.fate.0.replace(of_sent.clone())));
        open.fate.0.replace(of_open);
        self.answered.wake_all(&self.executor);
        self.bell.wake_all(&self.executor);
    }

    /// The server is lost.
    pub(super) fn lose_groups(&self, cause: &str) {
        let name = self.groups.sent.borrow().as_ref().and_then(|sent| sent.name).unwrap_or_default();
        let session = self.protocol.borrow().session().expect("it has joined");
        let lost = GroupOutcome::Lost { session, name, cause: cause.to_owned() };
        self.fail_groups(&lost, GroupOutcome::Unsent(cause.to_owned()));
    }

    /// Pages become again what those have left that are committed and not answered.
    pub(super) fn restore(&self, pages: &[PageId]) {
        let (open, sent) = (self.groups.open.borrow(), self.groups.sent.borrow());
        let mut pool = self.buffer.pool().borrow_mut();
        for page in pages {
            let member = open.pages.get(page).or_else(|| sent.as_ref()?.pages.get(page));
            let member = member.expect("a group that is not answered has changed it");
            let bytes = member.bytes.as_ref().expect("they were kept when it was changed again");
            pool.overwrite(member.frame, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_not_too_large_has_room_once_nothing_waits() {
        let groups = Groups::default();
        assert!(groups.has_room((1, 8, 0), (128, 7)), "what is alone is refused, if at all, by the server");
        assert!(
            groups.has_room((1, LIST_MAX, 0), (128, LIST_MAX))
                && !groups.has_room((1, LIST_MAX + 1, 0), (128, LIST_MAX))
        );
        let records = COMMIT_MAX - length_of_commit(0, 7, 4096);
        assert!(
            groups.has_room((records, 7, LIST_MAX), (4096, LIST_MAX))
                && !groups.has_room((records + 1, 7, 0), (4096, LIST_MAX))
        );
        groups.open.borrow_mut().members = 1;
        assert!(groups.has_room((1, 7, 0), (128, 7)) && !groups.has_room((1, 8, 0), (128, 7)));
        groups.open.borrow_mut().members = LIST_MAX;
        assert!(groups.has_room((1, 1, 1), (128, LIST_MAX)), "all but the first are named as others");
        groups.open.borrow_mut().members = LIST_MAX + 1;
        assert!(!groups.has_room((1, 1, 1), (128, LIST_MAX)));
    }
}
