//! What transactions of many nodes have read and written, and whether one after the other they could have done so: the judge of
//! isolation, which knows no page, no lock and no copy.

use base::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// A transaction. Each write of a counter makes the next version of it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub began: Instant,
    /// When its commit was acknowledged; `None` if what became of it is not known.
    pub acknowledged: Option<Instant>,
    /// The versions that it has read, by counter.
    pub reads: BTreeMap<u32, u64>,
    /// The versions that it has made.
    pub writes: BTreeMap<u32, u64>,
}

/// Looks for what no order of the transactions explains, where `last` are the versions that are there in the end.
pub fn check(entries: &[Entry], last: &BTreeMap<u32, u64>) -> Result<(), String> {
    let writers = writers(entries, last)?;
    for entry in entries.iter().filter(|entry| entry.acknowledged.is_some()) {
        for (counter, version) in &entry.reads {
            let later = writers.range((*counter, version + 1)..(*counter + 1, 0));
            let missed = later.map(|(_, writer)| &entries[*writer]).find(|writer| is_over(writer, entry.began));
            if missed.is_some() {
                return Err(format!(
                    "version {version} of {counter} is read after a later one was acknowledged: {entry:?}"
                ));
            }
        }
    }
    match cycle(entries, &writers) {
        Some(at) => Err(format!("no order explains {:?}", entries[at])),
        None => Ok(()),
    }
}

fn is_over(writer: &Entry, began: Instant) -> bool {
    writer.acknowledged.is_some_and(|acknowledged| acknowledged < began)
}

/// Who has made each version that counts.
fn writers(entries: &[Entry], last: &BTreeMap<u32, u64>) -> Result<BTreeMap<(u32, u64), usize>, String> {
    let mut writers = BTreeMap::new();
    // Those that are acknowledged first: of two that have made the same version, one was lost, and that must not be such a one.
    let (known, unknown): (Vec<usize>, Vec<usize>) =
        (0..entries.len()).partition(|index| entries[*index].acknowledged.is_some());
    for index in known {
        for (counter, version) in &entries[index].writes {
            if version > &last[counter] {
                return Err(format!(
                    "version {version} of {counter} was acknowledged and is lost: {:?}",
                    entries[index]
                ));
            }
            if writers.insert((*counter, *version), index).is_some() {
                return Err(format!("version {version} of {counter} is made twice: {:?}", entries[index]));
            }
        }
    }
    for index in unknown {
        let writes = &entries[index].writes;
        if writes.iter().all(|write| write.1 <= &last[write.0] && !writers.contains_key(&(*write.0, *write.1))) {
            writers.extend(writes.iter().map(|(counter, version)| ((*counter, *version), index)));
        }
    }
    for (counter, last) in last {
        if let Some(version) = (1..=*last).find(|version| !writers.contains_key(&(*counter, *version))) {
            return Err(format!("no one has made version {version} of {counter}"));
        }
    }
    Ok(writers)
}

/// A transaction that comes before itself.
fn cycle(entries: &[Entry], writers: &BTreeMap<(u32, u64), usize>) -> Option<usize> {
    let counting: BTreeSet<usize> = writers.values().copied().collect();
    let counts = |index: &usize| entries[*index].acknowledged.is_some() || counting.contains(index);
    let mut successors: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut order = |first: Option<&usize>, then: Option<&usize>| {
        if let (Some(first), Some(then)) = (first, then)
            && first != then
        {
            successors.entry(*first).or_default().insert(*then);
        }
    };
    for index in (0..entries.len()).filter(counts) {
        for (counter, version) in &entries[index].reads {
            order(writers.get(&(*counter, *version)), Some(&index));
            order(Some(&index), writers.get(&(*counter, version + 1)));
        }
        for (counter, version) in &entries[index].writes {
            order(writers.get(&(*counter, version - 1)), Some(&index));
        }
    }
    // Takes away what comes before nothing, again and again: what is left comes before itself.
    let mut left: BTreeSet<usize> = (0..entries.len()).filter(counts).collect();
    loop {
        let is_last = |index: &usize| successors.get(index).is_none_or(|after| after.is_disjoint(&left));
        let ends: Vec<usize> = left.iter().copied().filter(is_last).collect();
        if ends.is_empty() {
            return left.first().copied();
        }
        ends.iter().for_each(|end| {
            left.remove(end);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(began: u64, acknowledged: Option<u64>, reads: &[(u32, u64)], writes: &[(u32, u64)]) -> Entry {
        let (reads, writes) = (reads.iter().copied().collect(), writes.iter().copied().collect());
        let acknowledged = acknowledged.map(Instant::from_ns);
        Entry { began: Instant::from_ns(began), acknowledged, reads, writes }
    }

    #[test]
    fn each_anomaly_is_named() {
        let last = [(0, 1), (1, 1)].into();
        let sound = [entry(0, Some(5), &[(0, 0)], &[(0, 1)]), entry(6, None, &[(0, 1), (1, 0)], &[(1, 1)])];
        assert_eq!(check(&sound, &last), Ok(()));
        let stale = [sound[0].clone(), sound[1].clone(), entry(6, Some(9), &[(0, 0)], &[])];
        assert!(check(&stale, &last).expect_err("it is stale").contains("after a later one"));
        let skewed = [entry(0, Some(5), &[(0, 0), (1, 0)], &[(0, 1)]), entry(0, Some(5), &[(0, 0), (1, 0)], &[(1, 1)])];
        assert!(check(&skewed, &last).expect_err("it is write skew").contains("no order"));
        let lost = [(0, 0), (1, 1)].into();
        assert!(check(&sound, &lost).expect_err("it is lost").contains("is lost"));
        let twice = [sound[0].clone(), sound[0].clone(), sound[1].clone()];
        assert!(check(&twice, &last).expect_err("it is a lost update").contains("made twice"));
        assert!(check(&sound[1..], &last).expect_err("none made it").contains("no one"));
    }
}
