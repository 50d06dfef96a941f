//! A naive lock table: lists of requests, every rule applied by definition.

use super::{Attempt, Mode, Outcome, Owner, Resource, VictimPolicy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Granted,
    /// An upgrade that waits; the granted request is another.
    Upgrading,
    Waiting,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    owner: Owner,
    resource: Resource,
    mode: Mode,
    state: State,
    began: u64,
    is_victim: bool,
}

/// How a model may be wrong, so that tests can show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// New requests regard the holders only.
    Overtakes,
    /// A reader is admitted beside Update.
    SymmetricUpdate,
    /// Waiters ahead in the queue are left out of the waits-for graph.
    HolderEdgesOnly,
    /// Upgrades go to the end of the queue.
    UpgradesLast,
}

#[derive(Debug)]
pub(super) struct Model {
    /// Waiting requests in order of arrival, granted ones in order of the grant.
    requests: Vec<Request>,
    policy: VictimPolicy,
    flaw: Flaw,
}

impl Model {
    pub(super) fn new(policy: VictimPolicy, flaw: Flaw) -> Model {
        Model { requests: Vec::new(), policy, flaw }
    }

    pub(super) fn holds(&self, owner: Owner, resource: Resource) -> Option<Mode> {
        let held = |r: &&Request| r.owner == owner && r.resource == resource && r.state == State::Granted;
        self.requests.iter().find(held).map(|r| r.mode)
    }

    pub(super) fn waiting(&self, owner: Owner) -> Option<Resource> {
        self.requests.iter().find(|r| r.owner == owner && r.state != State::Granted).map(|r| r.resource)
    }

    pub(super) fn held(&self, owner: Owner) -> usize {
        self.requests.iter().filter(|r| r.owner == owner && r.state == State::Granted).count()
    }

    pub(super) fn request(&mut self, owner: Owner, resource: Resource, mode: Mode, began: u64) -> Outcome {
        let held = self.holds(owner, resource);
        let target = held.map_or(mode, |held| held.supremum(mode));
        if held == Some(target) {
            return Outcome::Granted;
        }
        let state = if held.is_some() { State::Upgrading } else { State::Waiting };
        self.requests.push(Request { owner, resource, mode: target, state, began, is_victim: false });
        let last = self.requests.len() - 1;
        if self.blockers(last).is_empty() {
            self.grant(last);
            return Outcome::Granted;
        }
        let on_cycles = self.on_cycles_with(owner);
        if on_cycles.is_empty() {
            return Outcome::Waiting;
        }
        let began = |owner: &Owner| self.requests.iter().find(|r| r.owner == *owner && r.state != State::Granted);
        let youngest = on_cycles.iter().copied().max_by_key(|o| (began(o).map(|r| r.began), *o));
        if let (VictimPolicy::Youngest, Some(victim)) = (self.policy, youngest)
            && victim != owner
        {
            self.set_victim(victim, true);
            if self.on_cycles_with(owner).is_empty() {
                return Outcome::Deadlock { victim };
            }
            self.set_victim(victim, false);
        }
        self.requests.pop();
        Outcome::Deadlock { victim: owner }
    }

    pub(super) fn try_request(&mut self, owner: Owner, resource: Resource, mode: Mode) -> Attempt {
        let before = self.requests.clone();
        match self.request(owner, resource, mode, 0) {
            Outcome::Granted => Attempt::Granted,
            _ => {
                self.requests = before;
                Attempt::Denied
            }
        }
    }

    pub(super) fn release(&mut self, owner: Owner, resource: Resource, woken: &mut Vec<Owner>) {
        self.requests.retain(|r| !(r.owner == owner && r.resource == resource && r.state == State::Granted));
        self.wake(resource, woken);
    }

    pub(super) fn release_all(&mut self, owner: Owner, woken: &mut Vec<Owner>) {
        self.cancel(owner, woken);
        let held = self.requests.iter().filter(|r| r.owner == owner).map(|r| r.resource);
        for resource in held.collect::<Vec<_>>().into_iter().rev() {
            self.release(owner, resource, woken);
        }
    }

    pub(super) fn cancel(&mut self, owner: Owner, woken: &mut Vec<Owner>) {
        if let Some(resource) = self.waiting(owner) {
            self.requests.retain(|r| r.owner != owner || r.state == State::Granted);
            self.wake(resource, woken);
        }
    }

    fn set_victim(&mut self, owner: Owner, is_victim: bool) {
        self.requests.iter_mut().filter(|r| r.owner == owner).for_each(|r| r.is_victim = is_victim);
    }

    fn wake(&mut self, resource: Resource, woken: &mut Vec<Owner>) {
        for state in [State::Upgrading, State::Waiting] {
            let waits = |r: &Request| r.resource == resource && r.state == state;
            while let Some(index) =
                (0..self.requests.len()).find(|i| waits(&self.requests[*i]) && self.blockers(*i).is_empty())
            {
                woken.push(self.requests[index].owner);
                self.grant(index);
            }
        }
    }

    fn grant(&mut self, index: usize) {
        let request = Request { state: State::Granted, is_victim: false, ..self.requests.remove(index) };
        let held = |r: &&mut Request| r.owner == request.owner && r.resource == request.resource;
        match self.requests.iter_mut().find(held) {
            Some(held) => held.mode = request.mode,
            None => self.requests.push(request),
        }
    }

    /// The owners that a waiting request waits for, by definition.
    fn blockers(&self, index: usize) -> Vec<Owner> {
        let request = self.requests[index];
        let in_the_way = |(at, other): &(usize, &Request)| {
            let stands_before = match (other.state, request.state) {
                (State::Granted, _) => true,
                (_, State::Upgrading) => self.flaw == Flaw::UpgradesLast && *at < index,
                _ if self.flaw == Flaw::Overtakes => false,
                (State::Upgrading, _) => self.flaw != Flaw::UpgradesLast || *at < index,
                _ => *at < index,
            };
            let admits = other.mode.admits(request.mode)
                || self.flaw == Flaw::SymmetricUpdate && (other.mode, request.mode) == (Mode::Update, Mode::Shared);
            other.resource == request.resource && other.owner != request.owner && stands_before && !admits
        };
        self.requests.iter().enumerate().filter(in_the_way).map(|(_, other)| other.owner).collect()
    }

    /// The owners on cycles through `owner`: those it reaches that reach it.
    fn on_cycles_with(&self, owner: Owner) -> Vec<Owner> {
        let reached = self.reached_from(owner);
        reached.into_iter().filter(|other| self.reached_from(*other).contains(&owner)).collect()
    }

    fn reached_from(&self, owner: Owner) -> Vec<Owner> {
        let mut reached: Vec<Owner> = Vec::new();
        let mut open = vec![owner];
        while let Some(at) = open.pop() {
            let waits = |r: &Request| r.owner == at && r.state != State::Granted && !r.is_victim;
            let Some(index) = self.requests.iter().position(waits) else { continue };
            let holds = |other: &Owner| self.holds(*other, self.requests[index].resource).is_some();
            for other in self.blockers(index) {
                let counts = self.flaw != Flaw::HolderEdgesOnly || holds(&other);
                if counts && !reached.contains(&other) {
                    reached.push(other);
                    open.push(other);
                }
            }
        }
        reached
    }
}
