//! A server, its clients and everything that is on its way between them.

mod faults;
mod snapshots;

use super::node::{Clock, Node, Place, Said, page, version};
use super::records::{ADDED, Access, SLOTS, of_slot};
use base::{Instant, Lsn, PageId, Random};
use entresol_node::algorithm::{Algorithm, Frames};
use entresol_node::lease::Term;
use entresol_node::message::{
    Answer, ClientId, Copy, Image, LeavingFate, RecordLock, Request, Secret, ToPeer, ToServer, Transaction,
};
use entresol_node::server::{Action, Counts, Joined, Memory, Server};
use snapshots::Moments;
use std::collections::{BTreeMap, VecDeque};

pub struct Plan {
    pub algorithm: &'static Algorithm,
    pub clients: u16,
    pub pages: u64,
    /// How many each client runs.
    pub transactions: usize,
    /// How often a page is passed on without being used.
    pub chances: u8,
    /// The room for earlier versions of pages, in bytes.
    pub snapshot_room: usize,
    pub faults: Faults,
}

/// Which database it is.
const DATABASE: u64 = 77;

fn serve(plan: &Plan, epoch: u64) -> Server {
    let mut server = Server::new(plan.algorithm, FRAMES, epoch);
    server.set_chances(plan.chances);
    server.set_snapshot_room(plan.snapshot_room);
    server
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    Nothing,
    /// Clients vanish, and others are started in their places; connections break.
    Clients,
    /// So does the server, too, which is started again.
    All,
}

/// The pages in the server's memory, the one to leave first in front.
#[derive(Default)]
struct ServerMemory(VecDeque<PageId>);

const SERVER_CAPACITY: usize = 2;
pub const FRAMES: Frames = Frames::lru(SERVER_CAPACITY);

impl Memory for ServerMemory {
    fn has(&self, page: PageId) -> bool {
        self.0.contains(&page)
    }

    fn has_left_as(&self, _: PageId, _: &[u8]) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

impl ServerMemory {
    fn use_page(&mut self, page: PageId) {
        self.0.retain(|other| *other != page);
        self.0.push_back(page);
        if self.0.len() > SERVER_CAPACITY {
            self.0.pop_front();
        }
    }
}

/// What the server has begun and not ended.
enum Pending {
    Page {
        to: ClientId,
        copy: Copy,
        fate: LeavingFate,
    },
    Commit {
        owner: (ClientId, Transaction),
        pages: Vec<Image>,
    },
    Keep {
        page: PageId,
        version: u64,
    },
    /// A commit is in the log up to this position, and its pages are changed.
    Durable {
        at: u64,
        owner: (ClientId, Transaction),
        pages: Vec<Image>,
    },
    Snapshot {
        id: (ClientId, u64),
        moment: Lsn,
    },
    AsOf {
        id: (ClientId, u64),
        page: PageId,
    },
    Record {
        to: ClientId,
        page: PageId,
        lock: RecordLock,
        is_alone: bool,
    },
}

/// Something that may happen next.
enum Event {
    ToServer(Place),
    /// What was received on a connection that is gone.
    Late(usize),
    /// An introduction that has come on two connections is heard on the one that is gone.
    Repeated(usize),
    ToClient(Place),
    ToPeer(Place, Place),
    Pending(usize),
    Step(Place),
    Renew(Place),
    Rejoin(Place),
    Abort(Place),
    /// A transaction does without a lock that it waits for.
    Skip(Place),
    Crash(Place),
    Cut(Place),
    Restart,
    /// A page between two clients is lost with their connection.
    Lose(Place, Place),
    Repeat(Place),
    Snapshot(Place),
}

/// What is between a node and the server.
#[derive(Default)]
struct Connection {
    /// Its name at the server, which knows it from its introduction on.
    client: Option<ClientId>,
    to_server: VecDeque<ToServer>,
    to_client: VecDeque<Answer>,
    is_open: bool,
}

pub struct World {
    plan: Plan,
    server: Server,
    epoch: u64,
    /// How many there have been.
    sessions: u128,
    /// Until when the server of this epoch waits for leases of the one before.
    gathers_until: Instant,
    terms: BTreeMap<ClientId, Term>,
    memory: ServerMemory,
    nodes: BTreeMap<Place, Node>,
    connections: BTreeMap<Place, Connection>,
    late: Vec<(ClientId, VecDeque<ToServer>)>,
    repeated: Vec<ToServer>,
    to_peer: BTreeMap<(Place, Place), VecDeque<ToPeer>>,
    pending: Vec<Pending>,
    /// The latest committed version of each page: as the server has it.
    committed: BTreeMap<PageId, u64>,
    moments: Moments,
    random: Random,
    of_snapshots: Random,
    of_repeats: Random,
    of_ahead: Random,
    now: u64,
    steps: u64,
}

/// Far more than any run needs.
const STEPS_MAX: u64 = 50_000;
/// How long leases last.
const LEASE_NS: u64 = 270;

fn start(place: Place, lease_ns: u64, scripts: Vec<Vec<Access>>, random: &mut Random) -> Node {
    // As slow as the server's clock may be faster, but for what a reading is rounded by.
    let clock = Clock { offset: random.below(1_000_000), rate: random.between(805, 1_250) };
    // Room for what one transaction may write, and one page more.
    Node::new((place, clock, random.chance(0.5)), random.between(5, 6) as usize, lease_ns, scripts)
}

impl World {
    pub fn new(plan: Plan, seed: u64) -> World {
        let mut random = Random::stream(seed, "model");
        let mut slots = Random::stream(seed, "model records");
        let mut nodes = BTreeMap::new();
        let lease_ns = if plan.faults == Faults::Nothing { 0 } else { LEASE_NS };
        for place in 1..=plan.clients {
            let mut access = |random: &mut Random| {
                let (number, writes) = (random.below(plan.pages), random.chance(0.4));
                let is_of_record = plan.algorithm.name() == "ps-aa" && slots.chance(0.85);
                Access { number, slot: is_of_record.then(|| slots.below(SLOTS) as u16), writes }
            };
            let mut script = |random: &mut Random| {
                let steps = random.between(1, 4);
                (0..steps).map(|_| access(random)).collect()
            };
            let scripts = (0..plan.transactions).map(|_| script(&mut random)).collect();
            nodes.insert(place, start(place, lease_ns, scripts, &mut random));
        }
        let committed: BTreeMap<PageId, u64> = (0..plan.pages).map(|number| (page(number), 0)).collect();
        let mut world = World {
            server: serve(&plan, 1),
            plan,
            epoch: 1,
            sessions: 0,
            gathers_until: Instant::START,
            terms: BTreeMap::new(),
            memory: ServerMemory::default(),
            connections: nodes.keys().map(|place| (*place, Connection::default())).collect(),
            nodes,
            late: Vec::new(),
            repeated: Vec::new(),
            to_peer: BTreeMap::new(),
            pending: Vec::new(),
            moments: Moments::new(&committed),
            committed,
            random,
            of_snapshots: Random::stream(seed, "snapshots"),
            of_repeats: Random::stream(seed, "repeats"),
            of_ahead: Random::stream(seed, "pages ahead"),
            now: 0,
            steps: 0,
        };
        (1..=world.plan.clients).for_each(|place| world.rejoin(place));
        world
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the server has counted since it was started last.
    pub fn counts(&self) -> Counts {
        self.server.counts()
    }

    fn has_leases(&self) -> bool {
        self.plan.faults != Faults::Nothing
    }

    pub fn run(&mut self) -> Result<(), String> {
        while self.nodes.values().any(|node| !node.is_done()) || self.is_anything_under_way() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                let waiting = self.nodes.values().find(|node| !node.is_done());
                return Err(format!("it goes on and on: {:?}", waiting.map(Node::wait)));
            }
            self.now += self.random.below(4);
            match self.next_event() {
                Some(event) => self.happen(event)?,
                None if self.has_leases() => self.now += LEASE_NS / 4,
                None => break,
            }
            self.nodes.values_mut().for_each(|node| node.look_at_clock(self.now));
            self.end_terms();
            self.server.check()?;
            self.check_directory()?;
        }
        match self.nodes.values().find(|node| !node.is_done()) {
            Some(node) => Err(format!("node {} waits for ever: {}", node.place, node.wait())),
            None if self.server.waiting() > 0 && !self.has_leases() => {
                Err("requests wait that no client has".to_owned())
            }
            None => Ok(()),
        }
    }

    fn is_anything_under_way(&self) -> bool {
        let is_open = |connection: &Connection| !connection.to_server.is_empty() || !connection.to_client.is_empty();
        !self.pending.is_empty() || self.connections.values().any(is_open)
    }

    /// The server gives up clients as soon as it may, and so it does with the leases of an earlier server.
    fn end_terms(&mut self) {
        let (mut actions, now) = (Vec::new(), Instant::from_ns(self.now));
        if self.server.is_gathering() && now >= self.gathers_until {
            self.server.end_gathering(&self.memory, &mut actions);
        }
        let over = self.terms.iter().filter(|(_, term)| now >= term.end()).map(|(client, _)| *client);
        for client in over.collect::<Vec<_>>() {
            self.terms.remove(&client);
            self.server.lose(client, &self.memory, &mut actions);
            let theirs = self.connections.iter().find(|(_, connection)| connection.client == Some(client));
            theirs.map(|(place, _)| *place).into_iter().for_each(|place| self.cut(place));
        }
        self.perform(actions);
    }

    /// Whether what a client has said can be heard now: an introduction waits for commits of the session before.
    fn is_heard(&self, connection: &Connection) -> bool {
        self.may_hear(connection.to_server.front())
    }

    fn may_hear(&self, message: Option<&ToServer>) -> bool {
        match message {
            Some(ToServer { body: Request::Hello { former: Some(former), .. }, .. }) => {
                !self.server.is_committing(former.session)
            }
            Some(_) => true,
            None => false,
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        let mut events = Vec::new();
        let open = self.connections.iter();
        events.extend(open.filter(|(_, c)| c.is_open && self.is_heard(c)).map(|(place, _)| Event::ToServer(*place)));
        let speaking = self.connections.iter().filter(|(_, connection)| !connection.to_client.is_empty());
        events.extend(speaking.map(|(place, _)| Event::ToClient(*place)));
        let peers = self.to_peer.iter().filter(|(_, queue)| !queue.is_empty());
        events.extend(peers.map(|((from, to), _)| Event::ToPeer(*from, *to)));
        events.extend((0..self.pending.len()).filter(|index| self.may_complete(*index)).map(Event::Pending));
        events.extend((0..self.late.len()).map(Event::Late));
        let repeated = (0..self.repeated.len()).filter(|index| self.may_hear(self.repeated.get(*index)));
        events.extend(repeated.map(Event::Repeated));
        events.extend(self.nodes.values().filter(|node| node.may_step()).map(|node| Event::Step(node.place)));
        let is_open = |node: &&Node| self.connections[&node.place].is_open;
        if self.has_leases() {
            let renewing = self.nodes.values().filter(|node| node.may_renew()).filter(is_open);
            let is_eager = self.random.chance(0.3);
            events.extend(renewing.filter(|node| is_eager || !node.has_lease()).map(|node| Event::Renew(node.place)));
            let gone = self.nodes.values().filter(|node| !node.is_done() && !is_open(node));
            // Most find it out late.
            let is_noticed = events.is_empty() || self.random.chance(0.05);
            events.extend(gone.filter(|_| is_noticed).map(|node| Event::Rejoin(node.place)));
        }
        // Who has waited for long asks again; that may be because a page was lost.
        let is_lossy = self.has_leases() && self.random.chance(0.05);
        if is_lossy || events.is_empty() {
            let waiting = self.nodes.values().find(|node| node.awaits_page() && (is_lossy || self.has_leases()));
            if let Some(node) = waiting {
                return Some(Event::Repeat(node.place));
            }
        }
        if events.is_empty() {
            return None;
        }
        let place = self.of_snapshots.between(1, u64::from(self.plan.clients)) as Place;
        if self.of_snapshots.chance(0.15) && self.may_step_snapshot(place) {
            return Some(Event::Snapshot(place));
        }
        if let Some(fault) = self.next_fault(&events) {
            return Some(fault);
        }
        let index = self.random.below(events.len() as u64) as usize;
        Some(events.swap_remove(index))
    }

    /// Commits become durable in the order of the log.
    fn may_complete(&self, index: usize) -> bool {
        match &self.pending[index] {
            Pending::Durable { at, .. } => self.is_next_in_log(*at),
            Pending::Snapshot { moment, .. } => self.is_next_in_log(moment.0 + 1),
            _ => true,
        }
    }

    fn next_fault(&mut self, events: &[Event]) -> Option<Event> {
        let place = self.random.between(1, u64::from(self.plan.clients)) as Place;
        if self.nodes[&place].may_abort(&mut self.random) {
            return Some(Event::Abort(place));
        }
        if self.nodes[&place].may_skip() && self.random.chance(0.02) {
            return Some(Event::Skip(place));
        }
        if !self.has_leases() {
            return None;
        }
        if self.random.chance(0.01) {
            let lost = events.iter().find_map(|event| match event {
                Event::ToPeer(from, to) => Some(Event::Lose(*from, *to)),
                _ => None,
            });
            if lost.is_some() {
                return lost;
            }
        }
        let is_going_on = !self.nodes[&place].is_done() && self.connections[&place].is_open;
        match self.random.below(1000) {
            0..2 if is_going_on => Some(Event::Crash(place)),
            2..7 if is_going_on => Some(Event::Cut(place)),
            7..10 if self.plan.faults == Faults::All => Some(Event::Restart),
            _ => None,
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::ToServer(place) => return self.hear(place),
            Event::Late(index) => self.hear_late(index),
            Event::Repeated(index) => self.hear_repeated(index),
            Event::ToClient(place) => {
                let connection = self.connections.get_mut(&place).expect("there is one");
                let answer = connection.to_client.pop_front().expect("it was there");
                let said = self.nodes.get_mut(&place).expect("it is there").hear(answer)?;
                self.say(place, said);
            }
            Event::ToPeer(from, place) => {
                let ToPeer::Page { to, secret, copy, bytes, fate } = self.take_from_peer((from, place));
                let node = self.nodes.get_mut(&place).expect("one is there");
                let said = node.arrive_from_peer((to, secret), copy, (&bytes, fate));
                self.say(place, said);
            }
            Event::Pending(index) => self.complete(index),
            Event::Step(place) => {
                let committed = &self.committed;
                let node = self.nodes.get_mut(&place).expect("it is there");
                let is_ahead = self.of_ahead.chance(0.15);
                let mut said = Vec::new();
                if is_ahead {
                    said = node.ask_ahead(page(self.of_ahead.below(self.plan.pages)));
                }
                said.extend(node.step(&|page| committed[&page])?);
                self.say(place, said);
            }
            Event::Renew(place) => {
                let renewal = self.nodes.get_mut(&place).and_then(Node::renew);
                self.say(place, renewal.into_iter().map(Said::Server).collect());
            }
            Event::Rejoin(place) => self.rejoin(place),
            Event::Abort(place) => {
                let said = self.nodes.get_mut(&place).expect("it is there").abort();
                self.say(place, said);
            }
            Event::Skip(place) => self.nodes.get_mut(&place).expect("it is there").skip(),
            Event::Crash(place) => self.crash(place),
            Event::Cut(place) => self.cut(place),
            Event::Restart => self.restart(),
            Event::Lose(from, to) => {
                self.to_peer.remove(&(from, to));
            }
            Event::Snapshot(place) => return self.step_snapshot(place),
            Event::Repeat(place) => {
                let said = self.nodes.get_mut(&place).expect("it is there").repeat();
                self.say(place, said);
            }
        }
        Ok(())
    }

    fn hear(&mut self, place: Place) -> Result<(), String> {
        let mut actions = Vec::new();
        let connection = self.connections.get_mut(&place).expect("there is one");
        let message = connection.to_server.pop_front().expect("it was there");
        let now = Instant::from_ns(self.now);
        if let Request::Hello { address, former, .. } = message.body {
            self.sessions += 1;
            let secret = Secret::of_session(self.sessions << 64, DATABASE);
            let joined = self.server.join(address, (former.as_ref(), secret), &self.memory, &mut actions);
            let Joined { session, keeps, former, .. } = joined;
            connection.client = Some(session.client);
            connection.to_client.push_back(Answer::Joined {
                session,
                secret,
                lease_ns: LEASE_NS,
                keeps,
                wants_leaving: true,
                pages_together: 100,
                former,
            });
            if self.has_leases() {
                self.terms.insert(session.client, Term::new(LEASE_NS, now));
            }
        } else {
            let client = connection.client.expect("it has introduced itself");
            let heard = self.server.receive(client, message, &self.memory, &mut actions);
            heard.map_err(|error| error.to_string())?;
            self.terms.entry(client).and_modify(|term| term.renew(now));
        }
        self.perform(actions);
        Ok(())
    }

    fn say(&mut self, from: Place, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Server(message) => {
                    let connection = self.connections.get_mut(&from).expect("there is one");
                    if connection.is_open {
                        connection.to_server.push_back(message);
                    }
                }
                Said::Peer(to, message) => self.to_peer.entry((from, to)).or_default().push_back(message),
            }
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::SendCatalog(client) => unreachable!("{client:?} knows the only partition"),
                Action::Send(to, answer) | Action::PassOn(to, answer) => self.send(to, answer),
                Action::SendPage { to, copy, fate, .. } => self.pending.push(Pending::Page { to, copy, fate }),
                Action::SendRecord { to, page, lock, is_alone } => {
                    self.pending.push(Pending::Record { to, page, lock, is_alone });
                }
                Action::SendSetRecord { to, .. } => unreachable!("{to:?} asks for no record of a set"),
                Action::AnswerSet { client, .. } => unreachable!("{client:?} asks about no set"),
                Action::ReadPastOfSet { client, .. } => unreachable!("{client:?} asks about no set"),
                Action::Touch(page) => self.memory.use_page(page),
                Action::BeginSnapshot { client, number, moment } => {
                    self.pending.push(Pending::Snapshot { id: (client, number), moment });
                }
                Action::ReadSnapshot { client, number, page } => {
                    self.pending.push(Pending::AsOf { id: (client, number), page });
                }
                Action::Keep(Image { page, bytes }) => {
                    self.pending.push(Pending::Keep { page, version: version(&bytes) });
                }
                Action::Commit { client, transaction, records, mut pages, redone, .. } => {
                    let versions = records.chunks_exact(8).map(<[u8]>::to_vec);
                    pages.extend(redone.into_iter().zip(versions).map(|(page, bytes)| Image { page, bytes }));
                    self.pending.push(Pending::Commit { owner: (client, transaction), pages });
                }
            }
        }
    }

    fn send(&mut self, to: ClientId, answer: Answer) {
        let theirs = self.connections.values_mut().find(|connection| connection.client == Some(to));
        if let Some(connection) = theirs.filter(|connection| connection.is_open) {
            connection.to_client.push_back(answer);
        }
    }

    fn complete(&mut self, index: usize) {
        let mut actions = Vec::new();
        match self.pending.swap_remove(index) {
            Pending::Page { to, copy, .. } if self.has_leases() && self.random.chance(0.02) => {
                let reason = "its disk does not answer".to_owned();
                self.server.failed(to, copy, (false, reason), &self.memory, &mut actions);
            }
            Pending::Page { to, copy, fate } => {
                self.memory.use_page(copy.page);
                let bytes = self.committed[&copy.page].to_le_bytes().to_vec();
                self.send(to, Answer::Page { copy, bytes, fate });
            }
            Pending::Record { to, page, lock, is_alone } => {
                let bytes = of_slot(self.committed[&page], lock.slot).to_le_bytes().to_vec();
                self.send(to, Answer::Record { page, lock, is_alone, bytes });
            }
            Pending::Keep { page, version } => {
                assert_eq!(version, self.committed[&page], "what comes back is what was committed last");
                self.memory.use_page(page);
                self.server.kept(page, &self.memory, &mut actions);
            }
            Pending::Commit { owner, pages } => self.apply_commit(owner, pages),
            Pending::Snapshot { id, moment } => self.tell_snapshot(id, moment),
            Pending::AsOf { id, page } => self.read_as_of(id, page),
            Pending::Durable { at, owner, pages } => {
                self.install(pages);
                self.note_acknowledged(at);
                self.server.committed(owner, &self.memory, &mut actions);
            }
        }
        self.perform(actions);
    }

    fn install(&mut self, pages: Vec<Image>) {
        for Image { page, bytes } in pages {
            let version = version(&bytes);
            let before = if version & ADDED == 0 { 0 } else { self.committed[&page] };
            self.committed.insert(page, before + (version & !ADDED));
            self.memory.use_page(page);
        }
    }

    /// The server knows of every copy that a client may use.
    fn check_directory(&self) -> Result<(), String> {
        let uses_copies = |node: &&Node| node.has_lease() && !node.is_joining();
        for node in self.nodes.values().filter(uses_copies).filter(|_| !self.server.is_gathering()) {
            let Some(session) = node.protocol.session() else { continue };
            for copy in node.resident() {
                if !self.server.copies(copy.page).contains(&(session.client, copy)) || session.epoch != self.epoch {
                    return Err(format!("the server does not know that node {} has {copy:?}", node.place));
                }
            }
        }
        Ok(())
    }
}
