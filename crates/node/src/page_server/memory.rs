//! The buffer as the server's memory, and what left it.

use super::records::place_of_record;
use super::sets::is_set;
use crate::server::Memory;
use base::{Lsn, PageId, PartitionId};
use engine::buffer::Presence;
use engine::page::{HEADER_SIZE, header};
use engine::{Database, Error, Internals};
use foldhash::quality::FixedState;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::mem;
use std::rc::Rc;

/// How many pages are noted before those that were noted as long ago as that are forgotten. A page that is forgotten is not taken back.
const NOTED_MAX: usize = 1 << 16;

/// The buffer. Of pages that have left it there is a hash of their bytes, by which it is told whether a client returns what it was sent.
pub(super) struct InBuffer {
    database: Database,
    left: Option<Rc<LeftPages>>,
}

/// Pages that have left. The seed of the hash is secret, so that no other bytes can be made that have the same one.
struct LeftPages {
    state: FixedState,
    hashes: RefCell<BTreeMap<PageId, u64>>,
    earlier: RefCell<BTreeMap<PageId, u64>>,
}

impl LeftPages {
    fn note(&self, page: PageId, bytes: &[u8]) {
        let mut hashes = self.hashes.borrow_mut();
        if hashes.len() == NOTED_MAX {
            self.earlier.replace(mem::take(&mut hashes));
        }
        hashes.insert(page, self.hash(bytes));
    }

    /// Of all but where the log has the page's latest change, which its client does not know.
    fn hash(&self, bytes: &[u8]) -> u64 {
        let mut bytes = bytes.to_vec();
        header::set_lsn(&mut bytes, Lsn::ZERO);
        header::seal(&mut bytes);
        self.state.hash_one(&bytes)
    }

    fn has(&self, page: PageId, bytes: &[u8]) -> bool {
        let hashes = self.hashes.borrow();
        let earlier = self.earlier.borrow();
        let noted = hashes.get(&page).or_else(|| earlier.get(&page));
        noted.is_some_and(|noted| bytes.len() >= HEADER_SIZE && *noted == self.hash(bytes))
    }
}

impl InBuffer {
    /// Without a `seed` nothing is noted: clients return nothing, or are believed.
    pub(super) fn new(database: &Database, seed: Option<u64>) -> InBuffer {
        let left = seed.map(|seed| {
            let (hashes, earlier) = Default::default();
            let left = Rc::new(LeftPages { state: FixedState::with_seed(seed), hashes, earlier });
            let noted = Rc::clone(&left);
            database.buffer().pool().borrow_mut().set_departure(Box::new(move |page, bytes| noted.note(page, bytes)));
            left
        });
        InBuffer { database: database.clone(), left }
    }
}

impl Memory for InBuffer {
    fn has(&self, page: PageId) -> bool {
        self.database.buffer().pool().borrow().presence(page) != Presence::Absent
    }

    fn has_left_as(&self, page: PageId, bytes: &[u8]) -> bool {
        self.left.as_ref().is_none_or(|left| left.has(page, bytes))
    }

    fn page_size(&self) -> usize {
        self.database.buffer().settings().page_size
    }

    fn is_set(&self, partition: PartitionId) -> bool {
        is_set(&self.database, partition)
    }

    fn may_have_record(&self, page: PageId, slot: u16) -> bool {
        // One whose partition is gone is in no one's way.
        !matches!(place_of_record(&self.database, page, slot), Err(Error::NoRecord(_)))
    }
}
