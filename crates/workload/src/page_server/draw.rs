use super::{DATABASE_PAGES, HOT_PAGES, HOT_PROBABILITY, TRANSACTION_PAGES};
use base::Random;
use std::collections::BTreeSet;

/// Which pages transactions reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// HOTCOLD: most references go to the client's own region, the others to the rest of the database.
    HotCold,
    /// UNIFORM: all pages are alike.
    Uniform,
}

impl Pattern {
    /// The words for them.
    pub const WORDS: [(&'static str, Pattern); 2] = [("hot-cold", Pattern::HotCold), ("uniform", Pattern::Uniform)];

    /// Whether a page is in the hot region of the client with this number, counted from 0.
    pub fn is_hot(self, client: u32, page: u32) -> bool {
        self == Pattern::HotCold && page / HOT_PAGES == client
    }

    /// Whether the next reference goes to the hot region.
    fn draws_hot(self, random: &mut Random) -> bool {
        self == Pattern::HotCold && random.chance(HOT_PROBABILITY)
    }

    /// A page of the hot region, or of the rest of the database; any page if there is no such region.
    fn draw(self, client: u32, is_hot: bool, random: &mut Random) -> u32 {
        match (self, is_hot) {
            (Pattern::Uniform, _) => random.below(u64::from(DATABASE_PAGES)) as u32,
            (Pattern::HotCold, true) => HOT_PAGES * client + random.below(u64::from(HOT_PAGES)) as u32,
            (Pattern::HotCold, false) => {
                let cold = random.below(u64::from(DATABASE_PAGES - HOT_PAGES)) as u32;
                if cold < HOT_PAGES * client { cold } else { cold + HOT_PAGES }
            }
        }
    }
}

/// One reference of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageReference {
    /// The page's number.
    pub page: u32,
    /// Whether it is written, too.
    pub writes: bool,
}

/// The references of a transaction of the client with this number, counted from 0: distinct pages.
pub fn references(pattern: Pattern, write_probability: f64, client: u32, random: &mut Random) -> Vec<PageReference> {
    let count = random.between(TRANSACTION_PAGES / 2, TRANSACTION_PAGES * 3 / 2);
    let mut seen = BTreeSet::new();
    let mut drawn = Vec::new();
    for _ in 0..count {
        let is_hot = pattern.draws_hot(random);
        // Without replacement in each region.
        let page = loop {
            let page = pattern.draw(client, is_hot, random);
            if seen.insert(page) {
                break page;
            }
        };
        drawn.push(PageReference { page, writes: random.chance(write_probability) });
    }
    drawn
}
