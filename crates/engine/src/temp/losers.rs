//! A tree of losers: the least of several sources after one of them has changed, with one comparison a level (Knuth, The Art of
//! Computer Programming, volume 3, section 5.4.1).

/// The sources by number. Every node but the topmost has the loser of its match; the winner of all stands above.
pub(super) struct Losers {
    nodes: Vec<u32>,
    winner: u32,
}

impl Losers {
    /// Of `sources` sources, at least one; `beats` says whether the first goes before the second.
    pub fn new(sources: u32, beats: impl Fn(u32, u32) -> bool) -> Losers {
        let mut nodes = vec![0; sources as usize];
        // Winners of the matches so far; leaf `n` stands at `sources + n`, node `n` below node `n / 2`.
        let mut winners: Vec<u32> = (0..sources).chain(0..sources).collect();
        for node in (1..sources as usize).rev() {
            let (one, other) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if beats(other, one) { (other, one) } else { (one, other) };
            (winners[node], nodes[node]) = (winner, loser);
        }
        Losers { nodes, winner: if sources > 1 { winners[1] } else { 0 } }
    }

    /// The source that goes first.
    #[inline]
    pub fn winner(&self) -> u32 {
        self.winner
    }

    /// The winner has changed: its matches are played again.
    #[inline]
    pub fn replay(&mut self, beats: impl Fn(u32, u32) -> bool) {
        let mut winner = self.winner;
        let mut node = (self.nodes.len() + winner as usize) / 2;
        while node > 0 {
            let loser = self.nodes[node];
            if beats(loser, winner) {
                self.nodes[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.winner = winner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn merges_as_sorting_does() {
        for seed in 0..200 {
            let mut random = Random::stream(seed, "losers");
            let sources = random.between(1, 20);
            let mut lists: Vec<Vec<u64>> = (0..sources)
                .map(|_| {
                    let mut list: Vec<u64> = (0..random.below(10)).map(|_| random.below(30)).collect();
                    list.sort_unstable_by(|one, other| other.cmp(one));
                    list
                })
                .collect();
            let mut all: Vec<u64> = lists.concat();
            all.sort_unstable();
            let head = |lists: &[Vec<u64>], source: u32| lists[source as usize].last().copied().unwrap_or(u64::MAX);
            let beats = |lists: &[Vec<u64>], one, other| (head(lists, one), one) < (head(lists, other), other);
            let mut tree = Losers::new(sources as u32, |one, other| beats(&lists, one, other));
            let mut merged = Vec::new();
            while let Some(least) = lists[tree.winner() as usize].pop() {
                merged.push(least);
                tree.replay(|one, other| beats(&lists, one, other));
            }
            assert_eq!(merged, all);
        }
    }
}
