use base::Random;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Records by key.
pub type RecordsByKey = BTreeMap<Vec<u8>, Rc<[u8]>>;

/// The least length of a value that names its writer.
const TAG: usize = 12;

/// What one client knows of its records.
#[derive(Clone, Debug, Default)]
pub struct Owner {
    /// What is there for certain.
    pub committed: RecordsByKey,
    /// The number of the transaction that made it so.
    pub version: u64,
    /// A transaction that asked to commit and was not answered, with what it would leave.
    pub doubt: Option<(u64, RecordsByKey)>,
    /// The number of the latest transaction.
    pub latest: u64,
    /// The latest transaction whose value an acknowledged transaction has read.
    pub seen: u64,
}

/// The key that a client calls `number`; numbers give keys of all lengths.
pub fn key(owner: usize, number: u64, length_max: usize) -> Vec<u8> {
    let mut key = vec![b'a' + owner as u8];
    key.extend_from_slice(format!("{number:03}").as_bytes());
    let length = key.len() + (number * 7 % 40) as usize;
    key.resize(length.min(length_max), b'.');
    key
}

/// Whose key it is.
pub fn owner_of(key: &[u8]) -> usize {
    usize::from(key.first().map_or(0, |first| first.wrapping_sub(b'a')))
}

/// A random value of `length` bytes that says, if it is long enough, which transaction wrote it.
pub fn value(owner: usize, version: u64, length: usize, random: &mut Random) -> Rc<[u8]> {
    let mut value = vec![0; length];
    random.fill(&mut value);
    tag(&mut value, owner, version);
    value.into()
}

/// Writes the writer into a value.
pub fn tag(value: &mut [u8], owner: usize, version: u64) {
    if value.len() >= TAG {
        value[..4].copy_from_slice(&(owner as u32).to_le_bytes());
        value[4..TAG].copy_from_slice(&version.to_le_bytes());
    }
}

/// Which transaction of its owner wrote a value, if it says so.
pub fn version_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*value.get(4..)?.first_chunk()?))
}

impl Owner {
    /// A transaction begins; gives its number.
    pub fn begin(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }

    /// The transaction in doubt is committed.
    pub fn acknowledge(&mut self) {
        if let Some((version, contents)) = self.doubt.take() {
            self.version = version;
            self.committed = contents;
        }
    }

    /// Whether a reader may be shown what transaction `version` wrote.
    pub fn may_show(&self, version: u64) -> bool {
        version <= self.version || self.doubt.as_ref().is_some_and(|(doubtful, _)| *doubtful == version)
    }

    /// Compares what is found with what may be there; then that is certain.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reconcile(&mut self, found: &RecordsByKey) -> Result<(), String> {
        if let Some((version, contents)) = &self.doubt {
            if found == contents {
                self.acknowledge();
                return Ok(());
            }
            if found == &self.committed && self.seen >= *version {
                return Err(format!("transaction {version} was shown to a committed one and is lost"));
            }
        }
        if found == &self.committed {
            self.doubt = None;
            return Ok(());
        }
        let mut what = format!("against version {}: {}", self.version, difference(&self.committed, found));
        if let Some((version, contents)) = &self.doubt {
            what += &format!("; against version {version} in doubt: {}", difference(contents, found));
        }
        Err(what)
    }
}

/// The first differences between what is expected and what is found, in words.
pub fn difference(expected: &RecordsByKey, found: &RecordsByKey) -> String {
    let keys: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let show = |value: Option<&Rc<[u8]>>| match value {
        None => "nothing".to_owned(),
        Some(value) => format!("{} bytes of version {:?}", value.len(), version_of(value)),
    };
    let differing = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key));
    let mut words: Vec<String> = differing
        .map(|key| {
            let key_text = String::from_utf8_lossy(key);
            format!("{key_text} should be {}, is {}", show(expected.get(key)), show(found.get(key)))
        })
        .collect();
    let more = words.len().saturating_sub(3);
    words.truncate(3);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(values: &[(u64, u64)]) -> RecordsByKey {
        let mut random = Random::stream(0, "values");
        values.iter().map(|(number, version)| (key(0, *number, 50), value(0, *version, 12, &mut random))).collect()
    }

    fn in_doubt() -> Owner {
        Owner { committed: contents(&[(1, 1)]), version: 1, doubt: Some((2, contents(&[(1, 2)]))), latest: 2, seen: 0 }
    }

    #[test]
    fn either_version_of_a_transaction_in_doubt_settles_it() {
        let mut owner = in_doubt();
        assert_eq!((owner.reconcile(&contents(&[(1, 2)])), owner.version, owner.doubt.is_none()), (Ok(()), 2, true));
        let mut owner = in_doubt();
        assert_eq!((owner.reconcile(&contents(&[(1, 1)])), owner.version, owner.doubt.is_none()), (Ok(()), 1, true));
        assert!(in_doubt().reconcile(&contents(&[(1, 1), (2, 2)])).is_err());
        assert!(
            Owner { seen: 2, ..in_doubt() }.reconcile(&contents(&[(1, 1)])).is_err_and(|what| what.contains("lost"))
        );
        assert!(Owner { doubt: None, ..in_doubt() }.reconcile(&contents(&[(1, 2)])).is_err());
    }

    #[test]
    fn only_what_may_be_committed_is_shown() {
        let owner = in_doubt();
        assert!(owner.may_show(1) && owner.may_show(2) && !owner.may_show(3));
        let mut value = [0; 12];
        tag(&mut value, 3, 77);
        assert_eq!(version_of(&value), Some(77));
        assert_eq!(version_of(&value[..11]), None);
        assert_eq!(owner_of(&key(3, 12, 50)), 3);
    }
}
