use super::measured::{Hits, ratio};
use super::{CONTROL_MESSAGE, DATABASE_PAGES, PageServerModel, Pattern, ServerCounts};
use base::{PageId, PartitionId};
use engine::buffer::Buffer;
use node::algorithm;
use node::message::ClientId;
use node::page_server::{PageServer, ServerInternals, ServerSettings};
use node::server::Found;
use std::cell::Cell;
use std::rc::Rc;

/// How a server works.
pub fn server_settings(model: &PageServerModel) -> ServerSettings {
    ServerSettings {
        algorithm: algorithm::named(&model.algorithm).expect("a model names one that there is"),
        chances: model.chances,
        message_size_min: CONTROL_MESSAGE,
        has_leases: false,
        grants: None,
    }
}

/// Where requests for pages were served.
#[derive(Default)]
pub struct Served {
    hits: Hits,
    forwards: Cell<u64>,
}

impl Served {
    /// Has it counted where the server finds what clients ask for, whose names are in the order of their numbers.
    pub fn observe(server: &PageServer, pattern: Pattern, names: Vec<ClientId>) -> Rc<Served> {
        let served: Rc<Served> = Rc::default();
        let counted = Rc::clone(&served);
        server.observe(Box::new(move |client, page, found| {
            let number = names.iter().position(|other| *other == client).unwrap_or(0) as u32;
            let is_hot = pattern.is_hot(number, page.number);
            match found {
                Some(Found::Memory) => counted.hits.count(is_hot, true),
                Some(Found::Disk) => counted.hits.count(is_hot, false),
                // Its request was counted when it was forwarded.
                Some(Found::Refused) => {}
                None => {
                    counted.hits.count(is_hot, false);
                    counted.forwards.set(counted.forwards.get() + 1);
                }
            }
        }));
        served
    }

    /// What the server has counted.
    pub fn counts(&self, server: &PageServer, pages: PartitionId) -> ServerCounts {
        let [[hot_misses, hot_hits], [cold_misses, cold_hits]] = self.hits.counts();
        let (counts, space) = (server.counts(), server.buffer().space(pages));
        ServerCounts {
            hot_hits,
            hot_misses,
            cold_hits,
            cold_misses,
            forwards: self.forwards.get(),
            refusals: counts.refusals,
            reads: space.reads.get(),
            writes: space.writes.get(),
            messages: server.traffic().messages.get(),
            bytes: server.traffic().bytes.get(),
            redone: counts.redone,
            leaving: counts.leaving,
            returned: counts.returned,
            passed_on: counts.passed_on,
            callbacks: counts.callbacks,
            victims: counts.victims,
        }
    }

    /// Forgets what was counted.
    pub(super) fn restart(&self) {
        self.hits.restart();
        self.forwards.set(0);
    }
}

/// Which pages of the database are in a buffer.
pub fn resident(buffer: &Buffer, pages: PartitionId) -> Vec<bool> {
    let pool = buffer.pool().borrow();
    (0..DATABASE_PAGES).map(|number| pool.frame_of(PageId::new(pages, number)).is_some()).collect()
}

/// The share of the database that a client can have without a disk, on average over the clients: what the server has, what it has itself and, if
/// pages are forwarded, what others have.
pub fn in_memory_ratio(server: &[bool], clients: &[Vec<bool>], is_forwarded: bool) -> f64 {
    let of_page = |(number, is_there): (usize, &bool)| {
        let holders = clients.iter().filter(|client| client[number]).count();
        if *is_there || (is_forwarded && holders > 0) { clients.len() } else { holders }
    };
    let found: usize = server.iter().enumerate().map(of_page).sum();
    ratio(found as u64, server.len() as u64 * clients.len() as u64)
}
