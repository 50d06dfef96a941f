//! What goes wrong in the model: connections break, nodes and the server vanish and are started again.

use super::{Connection, DATABASE, LEASE_NS, Pending, Place, ServerMemory, World, serve, start};
use base::Instant;
use entresol_node::lease::Term;
use entresol_node::message::{Request, Secret, ToPeer};
use entresol_node::server::Believed;

impl World {
    /// A connection breaks. What the server has received of it, it may still hear.
    pub(super) fn cut(&mut self, place: Place) {
        let connection = self.connections.get_mut(&place).expect("there is one");
        connection.is_open = false;
        let mut received = std::mem::take(&mut connection.to_server);
        received.truncate(self.random.below(received.len() as u64 + 1) as usize);
        if let (Some(client), false) = (connection.client, received.is_empty()) {
            self.late.push((client, received));
        }
    }

    /// A node finds its connection gone, and introduces itself on another one.
    pub(super) fn rejoin(&mut self, place: Place) {
        let node = self.nodes.get_mut(&place).expect("it is there");
        node.look_at_clock(self.now);
        let hello = node.introduce();
        if self.has_leases() && self.of_repeats.chance(0.2) {
            self.repeated.push(hello.clone());
        }
        let to_server = [hello].into();
        self.connections.insert(place, Connection { to_server, is_open: true, ..Connection::default() });
    }

    /// A client vanishes with all that it has, and another one is started in its place.
    pub(super) fn crash(&mut self, place: Place) {
        self.cut(place);
        let node = self.nodes.remove(&place).expect("it is there");
        self.nodes.insert(place, start(place, LEASE_NS, node.into_scripts(), &mut self.random));
        self.rejoin(place);
    }

    /// The server vanishes. Of the commits that were under way some are durable. Another one is started.
    pub(super) fn restart(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|pending| if let Pending::Durable { at, .. } = pending { *at } else { u64::MAX });
        for pending in pending {
            match pending {
                Pending::Durable { pages, .. } if self.random.chance(0.5) => self.install(pages),
                _ => break,
            }
        }
        self.forget_moments();
        self.connections.values_mut().for_each(|connection| {
            (connection.is_open, connection.client) = (false, None);
            connection.to_server.clear();
        });
        self.late.clear();
        self.repeated.clear();
        self.terms.clear();
        self.memory = ServerMemory::default();
        self.epoch += 1;
        self.server = serve(&self.plan, self.epoch);
        self.server.gather(Some(Believed { database: DATABASE, since: 0 }));
        self.gathers_until = Term::new(LEASE_NS, Instant::from_ns(self.now)).end();
    }
    /// What a client has said is heard after its connection broke. If it was given up, the rest of it is not.
    pub(super) fn hear_late(&mut self, index: usize) {
        let mut actions = Vec::new();
        let (client, messages) = &mut self.late[index];
        let message = messages.pop_front().expect("there is one");
        let is_heard = self.server.receive(*client, message, &self.memory, &mut actions).is_ok();
        let heard = Instant::from_ns(self.now);
        self.terms.entry(*client).and_modify(|term| {
            if is_heard {
                term.renew(heard)
            }
        });
        if !is_heard || messages.is_empty() {
            self.late.swap_remove(index);
        }
        self.perform(actions);
    }

    /// The server hears an introduction that came on two connections. The answer reaches no one.
    pub(super) fn hear_repeated(&mut self, index: usize) {
        let Request::Hello { address, former, .. } = self.repeated.swap_remove(index).body else {
            unreachable!("only introductions are kept")
        };
        let mut actions = Vec::new();
        self.sessions += 1;
        let secret = Secret::of_session(self.sessions << 64, DATABASE);
        let joined = self.server.join(address, (former.as_ref(), secret), &self.memory, &mut actions);
        self.terms.insert(joined.session.client, Term::new(LEASE_NS, Instant::from_ns(self.now)));
        self.perform(actions);
    }

    /// A page that is on its way between two clients comes. It may have been sent twice, and come once more behind others.
    pub(super) fn take_from_peer(&mut self, way: (Place, Place)) -> ToPeer {
        let comes_again = self.has_leases() && self.of_repeats.chance(0.1);
        let queue = self.to_peer.get_mut(&way).expect("it was there");
        let page = queue.pop_front().expect("it was there");
        queue.extend(comes_again.then(|| page.clone()));
        page
    }
}
