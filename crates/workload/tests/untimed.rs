//! The messages of the page server's algorithms, against a model of them without time: memories as lists of pages, and messages that
//! arrive as they are sent. What it has in common with the protocol is the rules alone (Franklin, Carey and Livny 1992, section 2.3).

mod described_machines;

use base::Random;
use described_machines::{SERVER_PAGES, measured, read_only};
use entresol_workload::page_server::{PageReference, PageServerModel, Pattern, references};
use std::collections::{BTreeMap, VecDeque};

/// The smaller buffers of clients.
const CLIENT_PAGES: u32 = 62;

/// A memory, from the page that leaves first to the one that leaves last.
type Pages = VecDeque<u32>;

fn take_out(pages: &mut Pages, page: u32) -> bool {
    let place = pages.iter().position(|other| *other == page);
    place.map(|place| pages.remove(place)).is_some()
}

/// The server, its clients and how many messages they have sent, by kind.
struct Untimed {
    forwards: bool,
    hates: bool,
    sends: bool,
    server: Pages,
    clients: Vec<Pages>,
    sent: BTreeMap<&'static str, u64>,
}

impl Untimed {
    fn new(algorithm: &str, clients: usize) -> Untimed {
        Untimed {
            forwards: algorithm != "cbl",
            hates: ["fwd-h", "fwd-hs"].contains(&algorithm),
            sends: ["fwd-s", "fwd-hs"].contains(&algorithm),
            server: Pages::new(),
            clients: vec![Pages::new(); clients],
            sent: BTreeMap::new(),
        }
    }

    fn send(&mut self, kind: &'static str) {
        *self.sent.entry(kind).or_default() += 1;
    }

    fn is_at_client(&self, page: u32) -> bool {
        self.clients.iter().any(|pages| pages.contains(&page))
    }

    /// Into the server's memory, as used just now.
    fn take_in(&mut self, page: u32) {
        if !take_out(&mut self.server, page) && self.server.len() == SERVER_PAGES {
            self.server.pop_front();
        }
        self.server.push_back(page);
    }

    fn reference(&mut self, client: usize, page: u32) {
        if take_out(&mut self.clients[client], page) {
            return self.clients[client].push_back(page);
        }
        self.send("read");
        if self.clients[client].len() == CLIENT_PAGES as usize {
            let leaving = self.clients[client].pop_front().expect("it is full");
            if self.sends && !self.is_at_client(leaving) {
                if !self.server.contains(&leaving) {
                    self.send("returned");
                }
                self.take_in(leaving);
            }
        }
        if self.forwards && !self.server.contains(&page) && self.is_at_client(page) {
            self.send("forward");
            self.send("page between clients");
        } else {
            self.send("page");
            self.take_in(page);
            if self.hates {
                self.server.rotate_right(1);
            }
        }
        self.clients[client].push_back(page);
    }
}

/// Messages per transaction, by kind: of this number of transactions, behind half of it.
fn untimed(algorithm: &str, clients: usize, transactions: u64) -> BTreeMap<&'static str, f64> {
    let mut model = Untimed::new(algorithm, clients);
    let [mut turns, mut random] = ["turns", "references"].map(|name| Random::stream(1, name));
    let mut drawn: Vec<VecDeque<PageReference>> = vec![VecDeque::new(); clients];
    let mut ended = 0;
    while ended < transactions * 3 / 2 {
        let client = turns.below(clients as u64) as usize;
        if drawn[client].is_empty() {
            drawn[client] = references(Pattern::HotCold, 0.0, client as u32, &mut random).into();
        }
        let reference = drawn[client].pop_front().expect("a transaction references pages");
        model.reference(client, reference.page);
        if drawn[client].is_empty() {
            ended += 1;
            if ended == transactions / 2 {
                model.sent.clear();
            }
        }
    }
    model.sent.into_iter().map(|(kind, count)| (kind, count as f64 / transactions as f64)).collect()
}

#[test]
fn clients_and_server_send_what_the_rules_say() {
    const CLIENTS: u32 = 6;
    for algorithm in ["cbl", "fwd", "fwd-h", "fwd-s", "fwd-hs"] {
        let model = PageServerModel { client_pages: CLIENT_PAGES, ..read_only(algorithm, Pattern::HotCold) };
        let figures = measured(&model, CLIENTS, [15, 30]);
        let all: f64 = figures.messages.values().sum();
        assert!((all - figures.messages_per_commit).abs() < 1e-9, "{figures:?}");
        let expected = untimed(algorithm, CLIENTS as usize, 4_000);
        for (kind, ours) in &figures.messages {
            let expected = expected.get(kind).copied().unwrap_or(0.0);
            // What is on its way may cross what another one asks for.
            assert!((ours - expected).abs() < 0.05 * expected + 0.1, "{algorithm}, {kind}: {ours}, not {expected}");
        }
    }
}

#[test]
fn hints_and_sending_take_the_most_messages_until_nothing_is_read_any_more() {
    let all = |algorithm, clients| untimed(algorithm, clients, 6_000).values().sum::<f64>();
    let above = [2, 5, 10, 15, 20, 25].map(|clients| all("fwd-hs", clients) - all("fwd-s", clients));
    assert!(above[..5].iter().all(|above| *above > 0.0) && above[5] < -0.1, "{above:?}");
}
