//! A machine on a network: its own events and those of the network, in the order of their moments.

use super::VirtualDriver;
use crate::network::Call;
use crate::{Network, NetworkOptions, Port};
use base::Instant;
use driver::{Completion, Halt, Op, Token};

impl VirtualDriver {
    pub(super) fn submit_to_network(&mut self, token: Token, op: Op) {
        let alone = || Network::new(NetworkOptions::default()).attach(0);
        self.port.get_or_insert_with(alone);
        self.call(token, Call::Submit(op));
    }

    pub(super) fn cancel_on_network(&mut self, token: Token) {
        self.call(token, Call::Cancel);
    }

    fn call(&self, token: Token, call: Call) {
        let (now, is_ahead) = (self.machine.now(), self.thread.is_some());
        match &self.port {
            Some(port) if is_ahead => port.call_ahead(now, token, call),
            Some(port) => port.call(now, token, call),
            None => {}
        }
    }

    /// The moment to which the network has come. Others may still have to come to that of a machine whose tasks keep its CPU.
    pub(super) fn network_now(&self) -> Instant {
        let ahead = self.port.as_ref().filter(|_| self.thread.is_some());
        ahead.map_or(self.machine.now(), Port::now)
    }

    /// When something happens to this machine next, of itself or on the network.
    pub(super) fn next_happening(&self) -> Option<Instant> {
        let network = self.port.as_ref().and_then(Port::next);
        self.machine.next().into_iter().chain(network).min()
    }

    pub(super) fn park_on_network(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let before = done.len();
        loop {
            self.collect_from_network(done);
            let is_done = done.len() > before;
            let limit = if is_done { Some(self.machine.now()) } else { until };
            let Some(next) = self.next_happening() else {
                if limit.is_none() {
                    return Err(Halt::Idle);
                }
                break;
            };
            if limit.is_some_and(|limit| next > limit.max(self.machine.now())) {
                break;
            }
            if self.faults.as_ref().is_some_and(|faults| faults.power_goes(VirtualDriver::events(self))) {
                return Err(self.cut_power());
            }
            self.next_of_both(next, done);
        }
        if let (Some(until), true) = (until, done.len() == before) {
            self.machine.pass(until);
        }
        Ok(())
    }

    /// The next event happens, of the network's and the machine's own.
    fn next_of_both(&mut self, next: Instant, done: &mut Vec<Completion>) {
        let network = self.port.as_ref().and_then(Port::next);
        if network.is_some_and(|network| self.machine.next().is_none_or(|own| network <= own)) {
            self.machine.pass(next);
            let before = done.len();
            self.collect_from_network(done);
            // What happened while the thread ran did so then.
            let at = if self.thread.is_some() { next } else { self.machine.now() };
            return self.port.iter().filter(|_| done.len() == before).for_each(|port| port.step(at));
        }
        let completed = self.machine.step().and_then(|job| self.flights[job.0 as usize].take());
        if let Some(flight) = completed {
            let completion = self.land(flight);
            done.push(completion);
        }
    }

    /// What has completed by now. What another machine has caused may be ahead of this one's clock, and waits until it is not.
    pub(super) fn collect_from_network(&mut self, done: &mut Vec<Completion>) {
        let Some(port) = &self.port else { return };
        for (kind, completion) in port.collect(self.machine.now()) {
            self.fold(self.machine.now().ns());
            self.fold(completion.token.0);
            self.fold(kind as u64);
            done.push(completion);
        }
    }
}
