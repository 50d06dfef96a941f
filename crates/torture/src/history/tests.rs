//! The checker against histories of which is known what they are.

mod brute_force;
mod catalogue;
mod left_out;

use super::{History, Key, Level, Span, Version};
use std::collections::BTreeMap;

/// The history of a script in the literature's notation, all of one level. Steps are separated by blanks: `b1` begins
/// transaction 1 (its first step does that too), `w1x1` writes x as 1 there and `d1x2` deletes it (a version as well), `r1x1`
/// reads x and finds 1 (`r1x-` nothing, `r1x0` the initial version), `s1x1y2` scans and finds these, `p1` sets a savepoint
/// and `u1` goes back to it, `q1` asks for the commit, `c1` has it acknowledged (asking before), `a1` aborts.
fn history(script: &str, level: Level) -> History {
    let mut history = History::default();
    let mut transactions: BTreeMap<char, usize> = BTreeMap::new();
    let mut versions: BTreeMap<(char, char), Version> = BTreeMap::new();
    let mut savepoints: BTreeMap<usize, usize> = BTreeMap::new();
    for step in script.split_whitespace() {
        let letters: Vec<char> = step.chars().collect();
        let transaction = *transactions.entry(letters[1]).or_insert_with(|| {
            let number = history.begin(level);
            history.started(number);
            number
        });
        let key = |letter: char| Key { store: "tree", number: u64::from(letter) };
        let mut found = Vec::new();
        for pair in letters[2..].chunks_exact(2) {
            let version = match pair[1] {
                '-' => None,
                '0' => Some(Version::INITIAL),
                _ => versions.get(&(pair[0], pair[1])).copied(),
            };
            found.push((key(pair[0]), version));
        }
        match letters[0] {
            'b' => {}
            'w' | 'd' => {
                let version = history.new_version(transaction, found[0].0);
                versions.insert((letters[2], letters[3]), version);
                history.wrote(transaction, version, (letters[0] == 'w').then_some(found[0].0.number));
            }
            'r' => history.read(transaction, found[0].0, found[0].1),
            's' => {
                let found = found.into_iter().map(|(key, version)| (key, version.expect("it is shown"))).collect();
                history.scanned(transaction, "tree", Span::ALL, found);
            }
            'p' => {
                savepoints.insert(transaction, history.savepoint(transaction));
            }
            'u' => history.rolled_back_to(transaction, savepoints[&transaction]),
            'q' => history.asks(transaction),
            'c' => {
                if history.transactions[transaction].asked.is_none() {
                    history.asks(transaction);
                }
                history.committed(transaction);
            }
            'a' => history.aborted(transaction),
            other => panic!("no such step: {other}"),
        }
    }
    history
}
