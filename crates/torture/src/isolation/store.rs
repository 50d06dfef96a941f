use super::Contention;
use crate::configuration::SEGMENT_SIZE;
use crate::history::{Key, Version};
use engine::PartitionSpec;
use engine::catalog::{IndexSpec, Locking, Organization};
use engine::set::{FieldType, FieldValue, RecordType};

/// A partition whose records clients meet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A b-tree, in which a record's place is its number.
    Tree,
    /// Records found by number, which are always there.
    Direct,
    /// A set.
    Set,
    /// A set of typed records with an index, in which a record's place is its group: writes move it.
    Index,
    /// Typed records of a set or a b-tree with a unique index, in which a record's place is its group: a write to a place that another
    /// record has is refused.
    Unique,
    /// Records in the order of their arrival, which are found by scans alone: each is written once, and its number is that of
    /// its only version.
    Appended,
}

/// The name of a secondary index.
pub const INDEX_NAME: &str = "by_group";

/// The length of a record that is found by number.
const RECORD_SIZE: u32 = 24;

/// The bits of the word that begins a value in which the version is; the others are those of its filler.
const VERSION_BITS: u32 = 56;

/// A version that is never written. It stands for a value that cannot be decoded.
const GARBAGE: Version = Version(u64::MAX);

impl Store {
    /// Those whose records have names.
    pub const NAMED: [Store; 4] = [Store::Tree, Store::Direct, Store::Set, Store::Index];

    /// The partition's name.
    pub fn name(self) -> &'static str {
        match self {
            Store::Tree => "tree",
            Store::Direct => "direct",
            Store::Set => "set",
            Store::Index => "index",
            Store::Unique => "unique",
            Store::Appended => "appended",
        }
    }

    /// Whether there is an order that can be scanned.
    pub fn is_ordered(self) -> bool {
        matches!(self, Store::Tree | Store::Index | Store::Unique)
    }

    /// Whether records are found by keys.
    pub fn has_keys(self) -> bool {
        !matches!(self, Store::Direct | Store::Appended)
    }

    /// Whether a record's place is its group, by which an index finds it.
    pub fn is_indexed(self) -> bool {
        matches!(self, Store::Index | Store::Unique)
    }

    /// How a record is called in the history.
    pub fn key(self, number: u64) -> Key {
        Key { store: self.name(), number }
    }

    /// The partition.
    pub fn spec(self, contention: &Contention) -> PartitionSpec {
        match self {
            Store::Tree => PartitionSpec::b_tree(self.name()),
            Store::Direct => {
                let (objects, blocking_factor) = (contention.keys, contention.blocking_factor);
                let organization = Organization::Direct { objects, blocking_factor, record_size: RECORD_SIZE };
                PartitionSpec::new(self.name(), organization, contention.locking)
            }
            Store::Set => PartitionSpec::new(self.name(), set(), Locking::Record),
            Store::Index => {
                let spec = PartitionSpec::new(self.name(), set(), Locking::Record).record(typed());
                spec.secondary(INDEX_NAME, &["group"])
            }
            Store::Unique => {
                let organization = if contention.unique_in_tree { Organization::BTree } else { set() };
                let spec = PartitionSpec::new(self.name(), organization, Locking::Record).record(typed());
                spec.index(IndexSpec::new(INDEX_NAME, &["group"]).unique())
            }
            Store::Appended => {
                let organization = match contention.appended_in_set {
                    true => Organization::Set { arrivals: true, segment_size: SEGMENT_SIZE, reserve_percent: 10 },
                    false => Organization::Append { blocking_factor: contention.appended_per_page },
                };
                PartitionSpec::new(self.name(), organization, contention.appended_locking)
            }
        }
    }

    /// A value: a version, its place if that is not the key's number, and some bytes that belong to the version, or to one before it
    /// ([`Store::changed`]).
    pub fn value(self, version: Version, place: u64, length: usize) -> Vec<u8> {
        let filler = vec![version.0 as u8; length];
        let mut value = Vec::new();
        match self {
            Store::Index | Store::Unique => {
                let fields = [FieldValue::U32(place as u32), FieldValue::U64(version.0), FieldValue::Bytes(&filler)];
                typed().encode(&fields, &mut value).expect("it is of the type");
            }
            Store::Tree | Store::Set | Store::Appended => {
                value.extend_from_slice(&first_word(version).to_le_bytes());
                value.extend_from_slice(&filler);
            }
            Store::Direct => {
                value.extend_from_slice(&first_word(version).to_le_bytes());
                value.resize(RECORD_SIZE as usize, version.0 as u8);
            }
        }
        value
    }

    /// A value of another version and the same length. A part of the versions leave the filler as it was, so that they change a part of
    /// the value.
    pub fn changed(self, version: Version, place: u64, old: &[u8]) -> Vec<u8> {
        let is_in_part = !self.is_indexed() && version.0.is_multiple_of(3) && old.len() >= size_of::<u64>();
        if !is_in_part {
            return self.value(version, place, self.filler_length(old));
        }
        let mut value = old.to_vec();
        let bytes = VERSION_BITS as usize / 8;
        value[..bytes].copy_from_slice(&version.0.to_le_bytes()[..bytes]);
        value
    }

    /// The version that a value is.
    pub fn version(self, value: &[u8]) -> Version {
        let word = |bytes: Option<&[u8]>| Some(u64::from_le_bytes(*bytes?.first_chunk()?));
        let (version, filler) = match self {
            Store::Index | Store::Unique => {
                let record = typed();
                let version = word(record.bytes(value, 1).ok());
                (version.map(|version| (version, version as u8)), record.bytes(value, 2).ok())
            }
            _ => {
                let split = |word: u64| (word & ((1 << VERSION_BITS) - 1), (word >> VERSION_BITS) as u8);
                (word(Some(value)).map(split), value.get(8..))
            }
        };
        let (Some((version, of_filler)), Some(filler)) = (version, filler) else { return GARBAGE };
        let is_whole = filler.iter().all(|byte| *byte == of_filler);
        let is_initial = version == Version::INITIAL.0 && self != Store::Direct;
        if is_whole && !is_initial { Version(version) } else { GARBAGE }
    }

    /// The place of a record that an index finds.
    pub fn place(value: &[u8]) -> Option<u64> {
        match typed().decode(value, 0) {
            Ok(FieldValue::U32(group)) => Some(group.into()),
            _ => None,
        }
    }

    /// A record that was added at the end: its value is all there is to name it.
    pub fn arrived(self, value: &[u8]) -> (Key, Version) {
        let version = self.version(value);
        (self.key(version.0), version)
    }

    /// The length of the bytes that belong to the version.
    pub fn filler_length(self, value: &[u8]) -> usize {
        match self {
            Store::Index | Store::Unique => typed().bytes(value, 2).map_or(0, <[u8]>::len),
            _ => value.len().saturating_sub(8),
        }
    }
}

/// What a value begins with that is of one version.
fn first_word(version: Version) -> u64 {
    version.0 | u64::from(version.0 as u8) << VERSION_BITS
}

/// A set of records with keys.
pub fn set() -> Organization {
    Organization::Set { arrivals: false, segment_size: SEGMENT_SIZE, reserve_percent: 10 }
}

/// The stored key of a record.
pub fn stored_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number of a stored key; a number that is never used if the key cannot be decoded.
pub fn number_of(key: &[u8]) -> u64 {
    key.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

fn typed() -> RecordType {
    let fields = [("group", FieldType::U32), ("version", FieldType::U64), ("filler", FieldType::Bytes)];
    RecordType::new(fields).expect("different names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_version_and_whether_it_is_whole() {
        for store in [&Store::NAMED[..], &[Store::Unique, Store::Appended]].concat() {
            let mut value = store.value(Version(770), 3, 12);
            assert_eq!(store.version(&value), Version(770), "{store:?}");
            assert_eq!(store.version(&store.value(Version(770), 3, store.filler_length(&value))), Version(770));
            *value.last_mut().expect("it has bytes") ^= 1;
            assert_eq!(store.version(&value), GARBAGE, "{store:?}");
            assert_eq!(store.version(&[]), GARBAGE);
        }
        for store in [Store::Tree, Store::Set, Store::Direct] {
            let old = store.value(Version(770), 3, 16);
            let mut value = store.changed(Version(771), 3, &old);
            assert_eq!((store.version(&value), &value[7..]), (Version(771), &old[7..]));
            *value.last_mut().expect("it has bytes") ^= 1;
            assert_eq!(store.version(&value), GARBAGE, "{store:?}");
            assert_eq!(store.changed(Version(772), 3, &old), store.value(Version(772), 3, 16));
        }
        assert_eq!(Store::Direct.version(&[0; 24]), Version::INITIAL);
        assert_eq!(Store::Tree.version(&[0; 24]), GARBAGE, "absence is no value");
        assert_eq!(number_of(&stored_key(9)), 9);
    }
}
