//! A client with a memory of version numbers and transactions to run.

use base::{PageId, PartitionId, Random};
use entresol_node::client::{Client, Ended, WriteLock};
use entresol_node::message::{Answer, ClientId, Copy, Image, ToPeer, ToServer, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// What a node says, and to whom.
pub enum Said {
    Server(ToServer),
    Peer(ClientId, ToPeer),
}

/// A page that the model's memory holds.
#[derive(Clone, Copy, Debug)]
struct Slot {
    version: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    AwaitingPage(PageId),
    AwaitingLock(PageId),
    AwaitingCommit,
    Done,
}

pub struct Node {
    pub id: ClientId,
    pub protocol: Client,
    memory: BTreeMap<PageId, Slot>,
    capacity: usize,
    kept: BTreeMap<Copy, u64>,
    clock: u64,
    /// The steps of the transactions still to be run: a page, and whether it is written.
    scripts: Vec<Vec<(u64, bool)>>,
    at: usize,
    state: State,
    transaction: Transaction,
    /// What the present transaction has read, and what it has written.
    reads: BTreeMap<PageId, u64>,
    writes: BTreeSet<PageId>,
}

pub fn page(number: u64) -> PageId {
    PageId::new(PartitionId(1), number as u32)
}

pub fn version(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a version"))
}

impl Node {
    pub fn new(id: ClientId, capacity: usize, scripts: Vec<Vec<(u64, bool)>>) -> Node {
        Node {
            id,
            protocol: Client::default(),
            memory: BTreeMap::new(),
            capacity,
            kept: BTreeMap::new(),
            clock: 0,
            scripts,
            at: 0,
            state: State::Idle,
            transaction: Transaction(0),
            reads: BTreeMap::new(),
            writes: BTreeSet::new(),
        }
    }

    /// The scripts that are not done.
    pub fn into_scripts(self) -> Vec<Vec<(u64, bool)>> {
        self.scripts
    }

    pub fn may_step(&self) -> bool {
        matches!(self.state, State::Idle | State::Running)
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What it waits for, if it waits.
    pub fn wait(&self) -> String {
        format!("{:?}, {:?} used by {:?}", self.state, self.memory, self.protocol.active().collect::<Vec<_>>())
    }

    /// The copies whose bytes are in its memory.
    pub fn resident(&self) -> impl Iterator<Item = Copy> {
        self.protocol.resident()
    }

    /// The next step of its transaction. `committed` tells the latest version of a page.
    pub fn step(&mut self, committed: &dyn Fn(PageId) -> u64) -> Result<Vec<Said>, String> {
        if self.state == State::Idle {
            let Some(_) = self.scripts.last() else {
                self.state = State::Done;
                return Ok(Vec::new());
            };
            self.transaction = self.protocol.begin();
            (self.at, self.state) = (0, State::Running);
            (self.reads, self.writes) = Default::default();
        }
        let script = self.scripts.last().expect("it runs one").clone();
        let Some((number, writes)) = script.get(self.at).copied() else { return self.commit(committed) };
        let page = page(number);
        self.protocol.enter(self.transaction, page);
        if !self.memory.contains_key(&page) {
            self.state = State::AwaitingPage(page);
            return Ok(self.fetch(page));
        }
        self.read(page, committed)?;
        if !writes {
            self.at += 1;
            return Ok(Vec::new());
        }
        match self.protocol.write(self.transaction, page) {
            WriteLock::Held => {
                self.write(page, committed)?;
                self.at += 1;
                Ok(Vec::new())
            }
            WriteLock::Ask(message) => {
                self.state = State::AwaitingLock(page);
                Ok(vec![Said::Server(message)])
            }
            WriteLock::Wait => Err(format!("{page} is locked by another transaction of the same client")),
        }
    }

    fn read(&mut self, page: PageId, committed: &dyn Fn(PageId) -> u64) -> Result<(), String> {
        self.clock += 1;
        let slot = self.memory.get_mut(&page).expect("it is here");
        slot.used = self.clock;
        let expected = committed(page) + u64::from(self.writes.contains(&page));
        if slot.version != expected {
            return Err(format!("{:?} reads version {} of {page}, not {expected}", self.id, slot.version));
        }
        if !self.writes.contains(&page) {
            self.reads.insert(page, slot.version);
        }
        Ok(())
    }

    fn write(&mut self, page: PageId, committed: &dyn Fn(PageId) -> u64) -> Result<(), String> {
        if self.writes.insert(page) {
            self.memory.get_mut(&page).expect("it is here").version += 1;
        }
        self.read(page, committed)
    }

    /// Makes room as a memory does that forgets what was used least recently, and asks for the page.
    fn fetch(&mut self, page: PageId) -> Vec<Said> {
        while self.memory.len() >= self.capacity {
            let clean = self.memory.iter().filter(|(page, _)| !self.protocol.may_write(self.transaction, **page));
            let Some(victim) = clean.min_by_key(|(_, slot)| slot.used).map(|(page, _)| *page) else { break };
            let slot = self.memory.remove(&victim).expect("it was found");
            let (kept, forgotten) = self.protocol.left(victim);
            self.kept.extend(kept.map(|copy| (copy, slot.version)));
            forgotten.map(|copy| self.kept.remove(&copy));
        }
        let (message, forgotten) = self.protocol.request(page, self.transaction);
        forgotten.map(|copy| self.kept.remove(&copy));
        vec![Said::Server(message)]
    }

    fn commit(&mut self, committed: &dyn Fn(PageId) -> u64) -> Result<Vec<Said>, String> {
        if let Some((page, version)) = self.reads.iter().find(|(page, version)| committed(**page) != **version) {
            return Err(format!("version {version} of {page} was read, and changed before the commit"));
        }
        let written = self.protocol.written(self.transaction);
        if written.is_empty() {
            let ended = self.protocol.committed(self.transaction);
            return Ok(self.end(true, ended));
        }
        let image = |page: &PageId| Image { page: *page, bytes: self.memory[page].version.to_le_bytes().to_vec() };
        let pages = written.iter().map(image).collect();
        self.state = State::AwaitingCommit;
        Ok(vec![Said::Server(self.protocol.commit(self.transaction, Vec::new(), pages))])
    }

    fn end(&mut self, is_committed: bool, ended: Ended) -> Vec<Said> {
        if is_committed {
            self.scripts.pop();
        }
        self.state = State::Idle;
        for page in ended.discards {
            self.memory.remove(&page);
        }
        ended.messages.into_iter().map(Said::Server).collect()
    }

    /// The server has said something.
    pub fn hear(&mut self, answer: Answer, committed: &dyn Fn(PageId) -> u64) -> Result<Vec<Said>, String> {
        match answer {
            Answer::Joined { .. } => Ok(Vec::new()),
            Answer::Page { copy, bytes, returns } => Ok(self.arrive(copy, &bytes, returns)),
            Answer::Granted { copy, transaction } => {
                if self.protocol.granted(copy, transaction) {
                    self.state = State::Running;
                    if self.memory.contains_key(&copy.page) {
                        self.write(copy.page, committed)?;
                        self.at += 1;
                    }
                }
                Ok(Vec::new())
            }
            Answer::CallBack { copy } => {
                let called = self.protocol.call_back(copy);
                if called.discards {
                    self.memory.remove(&copy.page);
                }
                called.forgets.map(|copy| self.kept.remove(&copy));
                Ok(called.answer.into_iter().map(Said::Server).collect())
            }
            Answer::Withdrawn { copy } => {
                self.protocol.withdrawn(copy);
                Ok(Vec::new())
            }
            Answer::Failed { copy, .. } => Err(format!("{copy:?} has failed")),
            Answer::Forward { copy, wanted, to, returns, .. } => Ok(vec![self.forward(copy, wanted, to, returns)]),
            Answer::Victim { transaction, withdrawn } if transaction == self.transaction => {
                for copy in withdrawn {
                    let (waited, forgotten) = self.protocol.failed(copy);
                    assert!(waited, "{copy:?} is withdrawn, and was not waited for");
                    forgotten.map(|copy| self.kept.remove(&copy));
                }
                let ended = self.protocol.aborted(transaction);
                Ok(self.end(false, ended))
            }
            // It has been rolled back already.
            Answer::Victim { .. } => Ok(Vec::new()),
            Answer::Committed { transaction } => {
                let ended = self.protocol.committed(transaction);
                Ok(self.end(true, ended))
            }
            other => Err(format!("the server says {other:?}")),
        }
    }

    fn forward(&mut self, copy: Copy, wanted: u64, to: ClientId, returns: bool) -> Said {
        let theirs = Copy { page: copy.page, number: wanted };
        if !self.protocol.may_send(copy) {
            return Said::Server(self.protocol.refuse(theirs, to, returns));
        }
        let version = self.kept.get(&copy).copied().unwrap_or_else(|| self.memory[&copy.page].version);
        Said::Peer(to, ToPeer::Page { copy: theirs, bytes: version.to_le_bytes().to_vec(), returns })
    }

    /// A page has come, from the server or another client.
    pub fn arrive(&mut self, copy: Copy, bytes: &[u8], returns: bool) -> Vec<Said> {
        let Some(arrival) = self.protocol.arrived(copy, returns) else { return Vec::new() };
        let mut said = Vec::new();
        self.clock += 1;
        self.memory.insert(copy.page, Slot { version: version(bytes), used: self.clock });
        if let Some((left, returns)) = arrival.leaving {
            let bytes = self.kept.remove(&left).expect("its bytes were kept").to_le_bytes().to_vec();
            if returns {
                said.push(Said::Server(self.protocol.give_back(left, bytes)));
            }
        }
        if arrival.is_called {
            self.memory.remove(&copy.page);
            said.extend(self.protocol.give_up(copy.page).map(Said::Server));
        }
        if self.state == State::AwaitingPage(copy.page) {
            self.state = State::Running;
        }
        said
    }

    pub fn awaits_page(&self) -> bool {
        matches!(self.state, State::AwaitingPage(_))
    }

    /// Asks again for the page that it waits for.
    pub fn repeat(&mut self) -> Vec<Said> {
        let State::AwaitingPage(page) = self.state else { return Vec::new() };
        self.protocol.repeat(page, self.transaction).into_iter().map(Said::Server).collect()
    }

    /// Whether it may be rolled back for no reason now.
    pub fn may_abort(&self, random: &mut Random) -> bool {
        matches!(self.state, State::Running | State::AwaitingLock(_)) && random.chance(0.02)
    }

    pub fn abort(&mut self) -> Vec<Said> {
        let ended = self.protocol.aborted(self.transaction);
        self.end(false, ended)
    }
}
