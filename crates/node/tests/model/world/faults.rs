//! What goes wrong in the model: connections break, nodes and the server vanish and are started again.

use super::{Connection, DATABASE, LEASE_NS, Pending, Place, ServerMemory, World, serve, start};
use base::Instant;
use entresol_node::lease::Term;

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
        self.terms.clear();
        self.memory = ServerMemory::default();
        self.epoch += 1;
        self.server = serve(&self.plan, self.epoch);
        self.server.gather(Some(DATABASE));
        self.gathers_until = Term::new(LEASE_NS, Instant::from_ns(self.now)).end();
    }
}
