//! A server, its clients and everything that is on its way between them.

use crate::node::{Node, Said, page, version};
use base::{PageId, Random};
use entresol_node::algorithm::Algorithm;
use entresol_node::message::{Answer, ClientId, Copy, Image, ToPeer, ToServer, Transaction};
use entresol_node::server::{Action, Memory, Server};
use std::collections::{BTreeMap, VecDeque};

pub struct Plan {
    pub algorithm: &'static dyn Algorithm,
    pub clients: usize,
    pub pages: u64,
    /// How many each client runs.
    pub transactions: usize,
    /// Whether clients vanish.
    pub crashes: bool,
}

/// The pages in the server's memory, the one to leave first in front.
#[derive(Default)]
struct ServerMemory(VecDeque<PageId>);

const SERVER_CAPACITY: usize = 2;

impl Memory for ServerMemory {
    fn has(&self, page: PageId) -> bool {
        self.0.contains(&page)
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
    Page { to: ClientId, copy: Copy, returns: bool },
    Commit { owner: (ClientId, Transaction), pages: Vec<Image> },
    Keep { page: PageId, version: u64 },
}

/// Something that may happen next.
enum Event {
    ToServer(ClientId),
    ToClient(ClientId),
    ToPeer(ClientId, ClientId),
    Pending(usize),
    Step(ClientId),
    Abort(ClientId),
    Crash(ClientId),
    /// A page between two clients is lost with their connection.
    Lose(ClientId, ClientId),
    Repeat(ClientId),
}

pub struct World {
    server: Server,
    memory: ServerMemory,
    nodes: BTreeMap<ClientId, Node>,
    to_server: BTreeMap<ClientId, VecDeque<ToServer>>,
    to_client: BTreeMap<ClientId, VecDeque<Answer>>,
    to_peer: BTreeMap<(ClientId, ClientId), VecDeque<ToPeer>>,
    pending: Vec<Pending>,
    /// The latest committed version of each page: as the server has it.
    committed: BTreeMap<PageId, u64>,
    random: Random,
    crashes: bool,
    steps: u64,
}

/// Far more than any run needs.
const STEPS_MAX: u64 = 200_000;

impl World {
    pub fn new(plan: Plan, seed: u64) -> World {
        let mut random = Random::stream(seed, "model");
        let mut server = Server::new(plan.algorithm);
        let mut nodes = BTreeMap::new();
        for _ in 0..plan.clients {
            let id = server.join("10.0.0.1:1".parse().expect("an address"));
            let script = |random: &mut Random| {
                let steps = random.between(1, 4);
                (0..steps).map(|_| (random.below(plan.pages), random.chance(0.4))).collect()
            };
            let scripts = (0..plan.transactions).map(|_| script(&mut random)).collect();
            // Room for what one transaction may write, and one page more.
            nodes.insert(id, Node::new(id, random.between(5, 6) as usize, scripts));
        }
        let committed = (0..plan.pages).map(|number| (page(number), 0)).collect();
        World {
            server,
            memory: ServerMemory::default(),
            nodes,
            to_server: BTreeMap::new(),
            to_client: BTreeMap::new(),
            to_peer: BTreeMap::new(),
            pending: Vec::new(),
            committed,
            random,
            crashes: plan.crashes,
            steps: 0,
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.next_event() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err("it goes on and on".to_owned());
            }
            self.happen(event)?;
            self.server.check()?;
            self.check_directory()?;
        }
        match self.nodes.values().find(|node| !node.is_done()) {
            Some(node) => Err(format!("{:?} waits for ever: {}", node.id, node.wait())),
            None if self.server.waiting() > 0 => Err("requests wait that no client has".to_owned()),
            None => Ok(()),
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        let mut events = Vec::new();
        let filled = |queues: usize| queues > 0;
        events.extend(self.to_server.iter().filter(|(_, q)| filled(q.len())).map(|(id, _)| Event::ToServer(*id)));
        events.extend(self.to_client.iter().filter(|(_, q)| filled(q.len())).map(|(id, _)| Event::ToClient(*id)));
        let peers = self.to_peer.iter().filter(|(_, q)| filled(q.len()));
        events.extend(peers.map(|((from, to), _)| Event::ToPeer(*from, *to)));
        events.extend((0..self.pending.len()).map(Event::Pending));
        events.extend(self.nodes.values().filter(|node| node.may_step()).map(|node| Event::Step(node.id)));
        // Who has waited for long asks again; that may be because a page was lost.
        let is_lossy = self.crashes && self.random.chance(0.05);
        if is_lossy || events.is_empty() {
            let waiting = self.nodes.values().find(|node| node.awaits_page() && (is_lossy || self.crashes));
            if let Some(node) = waiting {
                return Some(Event::Repeat(node.id));
            }
        }
        if events.is_empty() {
            return None;
        }
        if self.crashes && self.random.chance(0.01) {
            let lost = events.iter().find_map(|event| match event {
                Event::ToPeer(from, to) => Some(Event::Lose(*from, *to)),
                _ => None,
            });
            if lost.is_some() {
                return lost;
            }
        }
        let ids: Vec<ClientId> = self.nodes.keys().copied().collect();
        let id = *self.random.choose(&ids).expect("there are clients");
        if self.nodes[&id].may_abort(&mut self.random) {
            return Some(Event::Abort(id));
        }
        if self.crashes && !self.nodes[&id].is_done() && self.random.chance(0.002) {
            return Some(Event::Crash(id));
        }
        let index = self.random.below(events.len() as u64) as usize;
        Some(events.swap_remove(index))
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        let mut actions = Vec::new();
        match event {
            Event::ToServer(id) => {
                let message = self.to_server.get_mut(&id).and_then(VecDeque::pop_front).expect("it was there");
                let done = self.server.receive(id, message, &self.memory, &mut actions);
                done.map_err(|error| error.to_string())?;
            }
            Event::ToClient(id) => {
                let answer = self.to_client.get_mut(&id).and_then(VecDeque::pop_front).expect("it was there");
                let committed = &self.committed;
                let node = self.nodes.get_mut(&id).expect("it is there");
                let said = node.hear(answer, &|page| committed[&page])?;
                self.say(id, said);
            }
            Event::ToPeer(from, to) => {
                let queue = self.to_peer.get_mut(&(from, to)).expect("it was there");
                let ToPeer::Page { copy, bytes, returns } = queue.pop_front().expect("it was there");
                if let Some(node) = self.nodes.get_mut(&to) {
                    let said = node.arrive(copy, &bytes, returns);
                    self.say(to, said);
                }
            }
            Event::Pending(index) => self.complete(index, &mut actions),
            Event::Step(id) => {
                let committed = &self.committed;
                let said = self.nodes.get_mut(&id).expect("it is there").step(&|page| committed[&page])?;
                self.say(id, said);
            }
            Event::Abort(id) => {
                let said = self.nodes.get_mut(&id).expect("it is there").abort();
                self.say(id, said);
            }
            Event::Crash(id) => self.crash(id, &mut actions),
            Event::Lose(from, to) => {
                self.to_peer.remove(&(from, to));
            }
            Event::Repeat(id) => {
                let said = self.nodes.get_mut(&id).expect("it is there").repeat();
                self.say(id, said);
            }
        }
        self.perform(actions);
        Ok(())
    }

    fn say(&mut self, from: ClientId, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Server(message) => self.to_server.entry(from).or_default().push_back(message),
                Said::Peer(to, message) => self.to_peer.entry((from, to)).or_default().push_back(message),
            }
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, answer) => self.send(to, answer),
                Action::SendPage { to, copy, returns, .. } => self.pending.push(Pending::Page { to, copy, returns }),
                Action::Touch(page) => self.memory.use_page(page),
                Action::Keep(Image { page, bytes }) => {
                    self.pending.push(Pending::Keep { page, version: version(&bytes) });
                }
                Action::Commit { client, transaction, pages, .. } => {
                    self.pending.push(Pending::Commit { owner: (client, transaction), pages });
                }
            }
        }
    }

    fn send(&mut self, to: ClientId, answer: Answer) {
        if self.nodes.contains_key(&to) {
            self.to_client.entry(to).or_default().push_back(answer);
        }
    }

    fn complete(&mut self, index: usize, actions: &mut Vec<Action>) {
        match self.pending.swap_remove(index) {
            Pending::Page { to, copy, returns } => {
                self.memory.use_page(copy.page);
                let bytes = self.committed[&copy.page].to_le_bytes().to_vec();
                self.send(to, Answer::Page { copy, bytes, returns });
            }
            Pending::Keep { page, version } => {
                assert_eq!(version, self.committed[&page], "what comes back is what was committed last");
                self.memory.use_page(page);
                self.server.kept(page, &self.memory, actions);
            }
            Pending::Commit { owner, pages } => {
                for Image { page, bytes } in pages {
                    self.committed.insert(page, version(&bytes));
                    self.memory.use_page(page);
                }
                self.server.committed(owner, &self.memory, actions);
            }
        }
    }

    /// A client vanishes with all that it had said and not sent, and comes again as another.
    fn crash(&mut self, id: ClientId, actions: &mut Vec<Action>) {
        let node = self.nodes.remove(&id).expect("it is there");
        self.to_server.remove(&id);
        self.to_client.remove(&id);
        self.to_peer.retain(|(from, to), _| *from != id && *to != id);
        self.server.lose(id, &self.memory, actions);
        let other = self.server.join("10.0.0.1:1".parse().expect("an address"));
        self.nodes.insert(other, Node::new(other, 5, node.into_scripts()));
    }

    /// The server knows of every copy that a client has.
    fn check_directory(&self) -> Result<(), String> {
        for node in self.nodes.values() {
            for copy in node.resident() {
                if !self.server.copies(copy.page).contains(&(node.id, copy)) {
                    return Err(format!("the server does not know that {:?} has {copy:?}", node.id));
                }
            }
        }
        Ok(())
    }
}
