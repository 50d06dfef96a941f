//! A client hears anything of its server and of strangers while it uses pages as its rules are: nothing of that makes it panic.
#![no_main]

use base::{PageId, PartitionId};
use engine::lock::Mode;
use libfuzzer_sys::fuzz_target;
use node::client::{Client, PageLock, WriteLock};
use node::message::{Answer, ClientId, Copy, HEAD_SIZE, LeavingFate, Secret, Session, ToPeer, Transaction, decode};
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
        self.discard(due.discards);
    }

    fn discard(&mut self, pages: Vec<PageId>) {
        pages.iter().for_each(|page| assert!(self.memory.remove(page), "only what is there is given up"));
    }

    /// The transaction does something with a page.
    fn step(&mut self, what: u8, page: PageId) {
        match what % 6 {
            0 | 1 if !self.is_committing => {
                let mode = if what % 6 == 1 { Mode::Exclusive } else { Mode::Shared };
                if self.protocol.lock(self.transaction, page, mode) != PageLock::Held {
                    self.protocol.wait_no_more(self.transaction);
                    return;
                }
                self.protocol.enter(self.transaction, page);
                if !self.memory.contains(&page) && !self.protocol.is_coming(page) {
                    self.protocol.request((page, Secret::default()), self.transaction, what > 127);
                } else if self.memory.contains(&page) && what % 6 == 1 {
                    self.pinned.insert(page);
                    let _: WriteLock = self.protocol.write(self.transaction, page);
                }
            }
            2 if self.memory.contains(&page) && !self.pinned.contains(&page) => {
                self.memory.remove(&page);
                self.protocol.left(page);
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
            Answer::Granted { copy, transaction } => drop(self.protocol.granted(copy, transaction)),
            Answer::CallBack { copy } => {
                if self.protocol.call_back(copy).discards {
                    self.memory.remove(&copy.page);
                }
            }
            Answer::Withdrawn { copy } => self.protocol.withdrawn(copy),
            Answer::NotCommitted { .. } if self.is_committing => {
                self.protocol.refused();
                self.advance();
                self.begin();
            }
            Answer::Forward { copy, wanted, to, .. } => {
                if self.protocol.may_send(copy) {
                    return;
                }
                self.protocol.refuse(Copy { number: wanted, ..copy }, to);
            }
            Answer::AskAgain { copies } => {
                for copy in copies.into_iter().filter(|copy| self.protocol.lacks(*copy)).collect::<Vec<_>>() {
                    self.protocol.ask_again(copy.page);
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
    Some(match kind % 8 {
        0 | 1 => Answer::Page { copy, bytes: Vec::new(), fate },
        2 => Answer::Failed { copy, is_denied, reason: String::new() },
        3 => Answer::Granted { copy, transaction },
        4 => Answer::CallBack { copy },
        5 => Answer::Withdrawn { copy },
        6 => Answer::Victim { transaction, withdrawn: vec![copy] },
        7 if number > 127 => Answer::AskAgain { copies: vec![copy] },
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
