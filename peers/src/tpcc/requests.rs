//! What terminals ask for.

use crate::peer::Requests;
use base::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use workload::tpcc::{Input, Scale};

/// One transaction of the standard mix.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is about.
    pub input: Input,
    /// The number of its row in the history, if it makes one.
    pub sequence: u64,
    /// When it was asked for, in nanoseconds since the run began.
    pub time_ns: u64,
}

/// What the terminal shows, in one number that depends on all that was read.
pub type Answer = u64;

/// The terminals, and how many New-Orders of theirs were answered.
#[derive(Debug)]
pub struct Terminals {
    /// How large the database is.
    pub scale: Scale,
    new_orders: AtomicU64,
}

impl Terminals {
    /// Terminals of a database of this size.
    pub fn new(scale: Scale) -> Terminals {
        Terminals { scale, new_orders: AtomicU64::new(0) }
    }

    /// How many New-Orders were answered while the run was measured, those that were rolled back among them (clause 5.4.2).
    pub fn new_orders(&self) -> u64 {
        self.new_orders.load(Ordering::Relaxed)
    }
}

impl Requests for Terminals {
    type Terminal = Random;
    type Request = Request;
    type Answer = Answer;

    fn terminal(&self, seed: u64, number: usize) -> Random {
        Random::stream(seed, &format!("terminal {number}"))
    }

    fn next(&self, random: &mut Random, sequence: u64, time_ns: u64) -> Request {
        Request { input: Input::draw(&self.scale, random), sequence, time_ns }
    }

    fn time_ns(request: &Request) -> u64 {
        request.time_ns
    }

    fn answered(&self, request: &Request) {
        if matches!(request.input, Input::NewOrder(_)) {
            self.new_orders.fetch_add(1, Ordering::Relaxed);
        }
    }
}
