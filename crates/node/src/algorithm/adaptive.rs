//! Measures what disk and messages cost, and moves towards the algorithm that would cost the least.
//!
//! What clients ask for depends on their own memories, hardly on what the server does with its own. So each algorithm is followed on the
//! very references that come, in a memory of page ids alone ([`ghost`]): how many disk operations, pages between clients and returned
//! pages it would have taken is counted, not guessed. What those cost is told by how long clients have waited ([`prices`]): a queue at a
//! disk, at the network or at a processor makes whatever goes through it dear.
//!
//! Prices follow from what is done: without disk operations they are cheap, and so on. So it does not change over from one algorithm
//! to another at once. Each has a share of the decisions, and in each round the one that is the cheapest at the present prices
//! takes a part of the others' shares (Frank, Wolfe: An algorithm for quadratic programming, 1956). That comes to rest at one
//! algorithm, or where two cost the same.

mod ghost;
mod prices;

use super::{ALGORITHMS, Fate, Frames, Noted, Placement, Recency, Source};
use crate::message::ClientId;
use ghost::{Ghost, Tally};
use prices::Prices;

/// Reads between two changes of the shares: as many as the memory has frames, within these.
const ROUND_READS: std::ops::RangeInclusive<usize> = 8..=256;
/// What the cheapest takes of the others' shares in a round.
const STEP: f64 = 0.25;
/// A share that is smaller than this goes to the cheapest as a whole.
const SHARE_MIN: f64 = 1.0 / 16.0;
/// What one has to save to be preferred to the one that has the greatest share.
const MARGIN: f64 = 0.01;
/// The algorithm that decides before anything is known.
const FIRST: usize = 1;

/// The algorithm that follows the others.
pub struct Adaptive {
    candidates: Vec<Candidate>,
    prices: Prices,
    reads: usize,
    round_reads: usize,
    /// The candidate that decides about the present request.
    drawn: usize,
}

/// An algorithm that may decide.
struct Candidate {
    placement: Box<dyn Placement>,
    ghost: Ghost,
    share: f64,
    /// What it has not yet decided of its share.
    due: f64,
}

impl Adaptive {
    /// Follows the algorithms that stand before this one, in memories like this.
    pub fn new(memory: Frames) -> Adaptive {
        let fixed = ALGORITHMS.iter().take_while(|algorithm| algorithm.name() != "adaptive");
        let mut candidates: Vec<Candidate> = fixed
            .map(|algorithm| Candidate {
                placement: algorithm.begin(memory),
                ghost: Ghost::new(memory),
                share: 0.0,
                due: 0.0,
            })
            .collect();
        candidates[FIRST].share = 1.0;
        let round_reads = memory.count.clamp(*ROUND_READS.start(), *ROUND_READS.end());
        Adaptive { candidates, prices: Prices::default(), reads: 0, round_reads, drawn: FIRST }
    }

    fn decides(&self) -> &dyn Placement {
        &*self.candidates[self.drawn].placement
    }

    /// Each decides as often as its share says, as evenly as that can be.
    fn draw(&mut self) {
        self.candidates.iter_mut().for_each(|candidate| candidate.due += candidate.share);
        let by_due = |one: &usize, other: &usize| self.candidates[*one].due.total_cmp(&self.candidates[*other].due);
        self.drawn = (0..self.candidates.len()).max_by(by_due).expect("there are some");
        self.candidates[self.drawn].due -= 1.0;
    }

    /// The end of a round: the shares change, and what was counted long ago weighs less.
    fn end_round(&mut self) {
        let mixed = self.candidates.iter().fold(Tally::default(), |mixed, candidate| {
            let tally = candidate.ghost.tally();
            mixed.plus(tally, candidate.share)
        });
        self.prices.end_round();
        if let Some(target) = self.cheapest(&mixed) {
            self.move_to(target);
        }
        self.candidates.iter_mut().for_each(|candidate| candidate.ghost.fade());
    }

    fn cheapest(&self, mixed: &Tally) -> Option<usize> {
        let rates = self.prices.rates(mixed)?;
        let costs: Vec<f64> = self.candidates.iter().map(|candidate| rates.cost(candidate.ghost.tally())).collect();
        let by_share =
            |one: &usize, other: &usize| self.candidates[*one].share.total_cmp(&self.candidates[*other].share);
        let by_cost = |one: &usize, other: &usize| costs[*one].total_cmp(&costs[*other]);
        let present = (0..costs.len()).max_by(by_share)?;
        let cheapest = (0..costs.len()).min_by(by_cost)?;
        // What all pay alike is in that, so that little is not taken for much.
        let has_to_save = MARGIN * (rates.all + costs[present]);
        Some(if costs[present] - costs[cheapest] > has_to_save { cheapest } else { present })
    }

    fn move_to(&mut self, target: usize) {
        for (index, candidate) in self.candidates.iter_mut().enumerate() {
            candidate.share *= 1.0 - STEP;
            if index != target && candidate.share < SHARE_MIN {
                (candidate.share, candidate.due) = (0.0, 0.0);
            }
        }
        let others: f64 = self.candidates.iter().map(|candidate| candidate.share).sum();
        self.candidates[target].share += 1.0 - others;
    }
}

impl Placement for Adaptive {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        self.decides().source(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        self.decides().after_sending()
    }

    fn on_last_copy(&self, is_at_server: bool) -> Fate {
        self.decides().on_last_copy(is_at_server)
    }

    fn may_forward(&self) -> bool {
        true
    }

    fn may_return(&self) -> bool {
        true
    }

    fn note(&mut self, noted: Noted<'_>) {
        if let Noted::Waited(origin, waited_ns) = noted {
            return self.prices.note(origin, waited_ns);
        }
        for Candidate { placement, ghost, .. } in &mut self.candidates {
            ghost.follow(&**placement, noted);
        }
        if let Noted::Read(..) = noted {
            self.reads += 1;
            if self.reads.is_multiple_of(self.round_reads) {
                self.end_round();
            }
            self.draw();
        }
    }
}

#[cfg(test)]
mod tests;
