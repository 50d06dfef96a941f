//! A client hears anything of its server and of strangers while it uses pages as its rules are: nothing of that makes it panic.
#![no_main]

use base::{PageId, PartitionId};
use engine::lock::Mode;
use libfuzzer_sys::fuzz_target;
use node::client::{Client, Granule, PageLock, WriteLock};
use node::message::{
    Answer, ClientId, Copy, HEAD_SIZE, LeavingFate, PastAsk, RecordLock, Secret, Session, SetAnswer, SnapshotAnswer,
    ToPeer, Transaction, decode,
};
use std::collections::BTreeSet;

const SESSION: Session = Session { epoch: 1, client: ClientId(0) };

/// Who owns the client's memory.
struct Owner {
    protocol: Client,
    memory: BTreeSet<PageId>,
    transaction: Transaction,
    pinned: BTreeSet<PageId>,
    is_committing: bool,
}

impl Owner {
    fn begin(&mut self) {
        self.transaction = self.protocol.begin();
        self.pinned.clear();
        self.is_committing = false;
    }

    /// The pages that the transaction may have changed.
    fn changed(&self) -> BTreeSet<PageId> {
        self.pinned.iter().filter(|page| self.protocol.may_write(self.transaction, **page)).copied().collect()
    }

    fn roll_back(&mut self) {
        let restored = self.protocol.aborted(self.transaction, &self.changed());
        assert!(restored.is_empty(), "no other transaction is there");
        self.advance();
    }

    fn advance(&mut self) {
        let due = self.protocol.take_due();
        for fallen in due.falls {
            // Its transactions go on with locks of records.
            self.pinned.remove(&fallen.page);
            if fallen.is_here {
                self.discard(vec![fallen.page]);
            }
        }
        self.discard(due.discards);
    }

    /// The transaction has to be run again.
    fn run_again(&mut self) {
        if !self.is_committing {
            self.roll_back();
            self.begin();
        }
    }

    /// The transaction comes to a record of a page.
    fn use_record(&mut self, page: PageId, (slot, writes): (u16, bool)) {
        match self.protocol.granule(self.transaction, page) {
            Granule::Record => drop(self.protocol.access_record(self.transaction, page, (slot, writes))),
            Granule::Page if self.memory.contains(&page) => {
                let mode = if writes { Mode::Exclusive } else { Mode::Shared };
                if self.protocol.lock(self.transaction, page, mode) != PageLock::Held {
                    return self.protocol.wait_no_more(self.transaction);
                }
                self.protocol.enter(self.transaction, page);
                if writes {
                    self.pinned.insert(page);
                    if self.protocol.write(self.transaction, page) != WriteLock::Held {
                        return;
                    }
                }
                self.protocol.note_record(self.transaction, page, (slot, writes));
            }
            Granule::Page => {}
        }
    }

    /// Something is done with a snapshot.
    fn see(&mut self, what: u8, page: PageId) {
        let number = u64::from(what >> 3) % 4;
        match what >> 5 {
            0 | 1 => drop(self.protocol.begin_snapshot()),
            2 => drop(self.protocol.end_snapshot(number)),
            3 => drop(self.protocol.read_as_of(number, page)),
            4 => drop(self.protocol.ask_past(number, page.partition, PastAsk::Scan(0))),
            5 => drop(self.protocol.take_past(number)),
            6 if self.memory.contains(&page) => self.protocol.keep_for_snapshots(page, &[0; 8]),
            _ => drop(self.protocol.sight(number, page)),
        }
    }

    fn discard(&mut self, pages: Vec<PageId>) {
        pages.iter().for_each(|page| assert!(self.memory.remove(page), "only what is there is given up"));
    }

    /// The transaction does something with a page.
    fn step(&mut self, what: u8, page: PageId) {
        match what % 8 {
            0 | 1 if !self.is_committing => {
                if !self.protocol.use_page(self.transaction, page) {
                    return self.run_again();
                }
                let mode = if what % 8 == 1 { Mode::Exclusive } else { Mode::Shared };
                if self.protocol.lock(self.transaction, page, mode) != PageLock::Held {
                    self.protocol.wait_no_more(self.transaction);
                    return;
                }
                self.protocol.enter(self.transaction, page);
                if !self.memory.contains(&page) && !self.protocol.is_coming(page) {
                    self.protocol.request((page, Secret::default()), self.transaction, what > 127);
                } else if self.memory.contains(&page) && what % 8 == 1 {
                    self.pinned.insert(page);
                    let _: WriteLock = self.protocol.write(self.transaction, page);
                }
            }
            2 if self.memory.contains(&page) && !self.pinned.contains(&page) => {
                self.memory.remove(&page);
                self.protocol.left(page);
            }
            2 if !self.memory.contains(&page) && !self.protocol.is_coming(page) => {
                if self.protocol.user(page).is_none() {
                    self.protocol.request((page, Secret::default()), Transaction::NONE, false);
                }
            }
            3 if !self.is_committing => {
                self.roll_back();
                self.begin();
            }
            4 if !self.is_committing => {
                let changed = self.changed();
                if changed.is_empty() {
                    self.protocol.committed_unchanged(self.transaction);
                    self.advance();
                    self.begin();
                } else {
                    self.is_committing = true;
                    self.protocol.join_commit(self.transaction, changed);
                    self.advance();
                    self.protocol.send_commit(Vec::new(), Default::default(), Vec::new());
                }
            }
            5 if !self.is_committing => {
                self.roll_back();
                let kept = self.protocol.disconnect(what > 127);
                assert!(kept.iter().all(|copy| self.memory.contains(&copy.page)), "it names what is there");
                if kept.is_empty() {
                    let forgotten = self.protocol.forget_copies();
                    self.discard(forgotten);
                }
                self.protocol.join(SESSION, Secret::default());
                self.begin();
            }
            6 if !self.is_committing => self.use_record(page, (u16::from(what >> 3) % 4, what > 127)),
            7 => self.see(what, page),
            _ => {}
        }
    }

    fn arrive(&mut self, copy: Copy, arrival: Option<node::client::Arrival>) {
        let Some(arrival) = arrival else { return };
        assert!(self.memory.insert(copy.page), "a page comes once");
        if arrival.is_called {
            self.memory.remove(&copy.page);
            self.protocol.give_up(copy.page);
        }
        self.advance();
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Page { copy, fate, .. } => {
                let arrival = self.protocol.arrived(copy, fate);
                self.arrive(copy, arrival);
            }
            Answer::Failed { copy, .. } => drop(self.protocol.failed(copy)),
            Answer::WouldBlock { copy } => drop(self.protocol.would_block(copy)),
            Answer::Granted { copy, transaction } => drop(self.protocol.granted(copy, transaction)),
            Answer::CallBack { copy } => {
                if self.protocol.call_back(copy).discards {
                    self.memory.remove(&copy.page);
                }
            }
            Answer::Fall { copy } => {
                if self.protocol.fall(copy).discards {
                    self.memory.remove(&copy.page);
                }
            }
            Answer::ByRecords { copy } => drop(self.protocol.by_records(copy)),
            Answer::Record { page, lock, is_alone, .. } => drop(self.protocol.record_granted(page, lock, is_alone)),
            Answer::NoRecord { page, lock, .. } => drop(self.protocol.record_refused(page, lock)),
            Answer::NoLeaf { page, lock } => {
                if self.protocol.has_no_leaf(page, lock) && lock.transaction == self.transaction {
                    self.run_again();
                }
            }
            Answer::Denied { transaction, .. } if transaction == self.transaction => self.run_again(),
            Answer::Offer { page } => {
                if self.protocol.is_free_for(page) && !self.memory.contains(&page) {
                    self.protocol.accept((page, Secret::default()));
                } else {
                    self.protocol.decline(page);
                }
            }
            Answer::LastCopy { copy } => drop(self.protocol.is_last(copy)),
            Answer::Snapshot { number, said } => self.protocol.hear_of_snapshot(number, said),
            Answer::Withdrawn { copy } => self.protocol.withdrawn(copy),
            Answer::NotCommitted { .. } if self.is_committing => {
                self.protocol.refused();
                self.advance();
                self.begin();
            }
            Answer::Forward { copy, wanted, to, .. } => {
                if self.protocol.may_send(copy) {
                    self.protocol.sent(copy);
                    return;
                }
                self.protocol.refuse(Copy { number: wanted, ..copy }, to);
            }
            Answer::AskAgain { copies } => {
                for copy in copies.into_iter().filter(|copy| self.protocol.lacks(*copy)).collect::<Vec<_>>() {
                    if self.protocol.is_speculative(copy.page) {
                        self.protocol.failed(copy);
                    } else {
                        self.protocol.ask_again(copy.page);
                    }
                }
            }
            Answer::Victim { transaction, withdrawn } => {
                for copy in withdrawn {
                    self.protocol.request_withdrawn(copy);
                }
                if transaction == self.transaction && !self.is_committing {
                    self.step(3, PageId::default());
                }
            }
            Answer::Committed { transaction } if transaction == self.transaction && self.is_committing => {
                self.protocol.committed();
                self.advance();
                self.begin();
            }
            _ => {}
        }
        self.advance();
    }
}

fn fate(byte: u8) -> LeavingFate {
    [LeavingFate::Dropped, LeavingFate::Returned, LeavingFate::Offered][usize::from(byte >> 5) % 3]
}

/// What a server says of one of a few pages; `None` for anything.
fn likely(bytes: &[u8; 4]) -> Option<Answer> {
    let [kind, page, number, transaction] = *bytes;
    let copy = Copy { page: PageId::new(PartitionId(1), u32::from(page % 4)), number: u64::from(number % 16) };
    let (transaction, is_denied) = (Transaction(u64::from(transaction % 16)), page > 127);
    let fate = fate(page);
    let lock = RecordLock { slot: u16::from(number >> 4) % 4, transaction, writes: number % 2 == 0 };
    Some(match kind % 16 {
        0 | 1 => Answer::Page { copy, bytes: Vec::new(), fate },
        2 => Answer::Failed { copy, is_denied, is_full: number > 127, reason: String::new() },
        3 => Answer::Granted { copy, transaction },
        4 => Answer::CallBack { copy },
        5 => Answer::Withdrawn { copy },
        6 => Answer::Victim { transaction, withdrawn: vec![copy] },
        7 if number > 127 => Answer::AskAgain { copies: vec![copy] },
        7 => Answer::WouldBlock { copy },
        8 => Answer::Fall { copy },
        9 => Answer::ByRecords { copy },
        10 => Answer::Record { page: copy.page, lock, is_alone: page > 127, bytes: vec![0; 8] },
        11 if page > 127 => Answer::NoLeaf { page: copy.page, lock },
        11 => Answer::NoRecord { page: copy.page, lock, is_denied, reason: String::new() },
        12 => Answer::Offer { page: copy.page },
        13 if number > 127 => Answer::LastCopy { copy },
        13 => Answer::Denied { transaction, reason: String::new() },
        14 => {
            let said = match page >> 5 {
                0 | 1 => SnapshotAnswer::Begun { moment: u64::from(number) },
                2 => SnapshotAnswer::TooOld { oldest: u64::from(number) },
                3 => SnapshotAnswer::Undecided { reason: String::new() },
                4 => SnapshotAnswer::Failed { page: copy.page, is_denied, reason: String::new() },
                5 => SnapshotAnswer::Set { question: u64::from(number % 4), said: SetAnswer::AskAgain },
                _ => SnapshotAnswer::Page { page: copy.page, bytes: vec![0; 8] },
            };
            Answer::Snapshot { number: u64::from(number % 4), said }
        }
        _ => return None,
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (protocol, memory, pinned) = (Client::default(), BTreeSet::new(), BTreeSet::new());
    let mut owner = Owner { protocol, memory, transaction: Transaction(0), pinned, is_committing: false };
    owner.protocol.join(SESSION, Secret::default());
    owner.begin();
    let mut rest = bytes;
    while let Some(([step, said @ ..], behind)) = rest.split_first_chunk::<5>() {
        rest = behind;
        let mut frame = vec![0; HEAD_SIZE];
        frame.extend_from_slice(&behind[..usize::from(said[1]).min(behind.len())]);
        match step % 4 {
            0 | 1 => owner.step(said[0], PageId::new(PartitionId(1), u32::from(said[1] % 4))),
            2 => likely(said).or_else(|| decode(&frame).ok()).into_iter().for_each(|answer| owner.hear(answer)),
            _ => {
                let copy =
                    Copy { page: PageId::new(PartitionId(1), u32::from(said[0] % 4)), number: u64::from(said[1] % 16) };
                let any = decode::<ToPeer>(&frame).ok();
                let ToPeer::Page { to, secret, copy, fate, .. } = any.unwrap_or(ToPeer::Page {
                    to: SESSION,
                    secret: Secret(u128::from(said[2] / 200)),
                    copy,
                    bytes: Vec::new(),
                    fate: fate(said[3]),
                });
                let arrival = owner.protocol.arrived_from_peer((to, secret), copy, fate);
                owner.arrive(copy, arrival);
            }
        }
        let resident: BTreeSet<PageId> = owner.protocol.resident().map(|copy| copy.page).collect();
        assert_eq!(resident, owner.memory, "what it knows of its memory is right");
    }
});
