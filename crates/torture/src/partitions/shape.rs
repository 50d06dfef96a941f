//! The contents of a partition: its organization, and records identified by a number.

use crate::configuration::SEGMENT_SIZE;
use base::Random;
use engine::PartitionSpec;
use engine::catalog::{IndexSpec, Locking, Organization};
use engine::organization::append;
use engine::page::HEADER_SIZE;
use engine::set::{FieldType, FieldValue, RecordType};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Records by number, as they are stored. Objects of a direct partition that are all zeros are left out.
pub type RecordsByNumber = BTreeMap<u64, Rc<[u8]>>;

/// How a partition's records are found, and what they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeKind {
    /// A b-tree.
    Tree,
    /// Objects found by number.
    Direct,
    /// Records in the order of their arrival; each begins with its number.
    Append,
    /// A set.
    Set,
    /// A set of arrivals; each record begins with its number.
    Arrivals,
    /// A set of typed records with a secondary index, unique or not, which is created and dropped under some names.
    Typed,
    /// A b-tree of typed records, most of the time with a secondary index, unique or not, which is created and dropped.
    TypedTree,
}

/// Whether the index of a set of this name comes and goes.
pub fn changes_its_index(name: &str) -> bool {
    name.ends_with(TYPED_NAME)
}

/// A partition that is there, or may be.
#[derive(Clone, Debug)]
pub struct Shape {
    pub kind: ShapeKind,
    /// Whether no two records may have the same group while there is the index.
    pub is_unique: bool,
    pub spec: PartitionSpec,
    pub contents: RecordsByNumber,
}

/// The name of the secondary index of typed records.
pub const INDEX_NAME: &str = "by_group";

/// How the names end whose b-trees have typed records, and whose sets of such get and lose their index.
const TYPED_NAME: &str = "3";

/// The bytes of a typed record besides its filler, at most.
const TYPED_OVERHEAD: usize = 40;

/// The bytes that the header of a segment, the header of a record and a key of eight bytes take.
const SEGMENT_OVERHEAD: usize = 64 + 16 + 8;

impl ShapeKind {
    const ALL: [ShapeKind; 6] =
        [ShapeKind::Tree, ShapeKind::Direct, ShapeKind::Append, ShapeKind::Set, ShapeKind::Arrivals, ShapeKind::Typed];

    /// Whether a partition of this kind can be loaded at once.
    pub fn is_loaded(self) -> bool {
        matches!(self, ShapeKind::Tree | ShapeKind::Set | ShapeKind::Typed)
    }

    /// Whether it is a b-tree.
    pub fn is_tree(self) -> bool {
        matches!(self, ShapeKind::Tree | ShapeKind::TypedTree)
    }

    /// Whether its records are typed.
    pub fn is_typed(self) -> bool {
        matches!(self, ShapeKind::Typed | ShapeKind::TypedTree)
    }

    /// Whether its records stay as they were added, at the end.
    pub fn is_appended(self) -> bool {
        matches!(self, ShapeKind::Append | ShapeKind::Arrivals)
    }

    /// A random partition of this name and of some kind.
    pub fn draw(name: &str, page_size: usize, random: &mut Random) -> Shape {
        let mut kind = *random.choose(&ShapeKind::ALL).expect("there are some");
        if matches!(kind, ShapeKind::Tree | ShapeKind::Append) && changes_its_index(name) {
            kind = ShapeKind::TypedTree;
        }
        let set = |arrivals| Organization::Set { arrivals, segment_size: SEGMENT_SIZE, reserve_percent: 10 };
        let any = *random.choose(&[Locking::None, Locking::Page, Locking::Record]).expect("there are some");
        let is_unique = kind.is_typed() && random.chance(0.5);
        let spec = match kind {
            ShapeKind::Tree => PartitionSpec::b_tree(name),
            ShapeKind::TypedTree => PartitionSpec::b_tree(name).record(typed()).index(index(is_unique)),
            ShapeKind::Direct => {
                let room = page_size - HEADER_SIZE;
                let record_size = random.between(8, (room as u64).min(200)) as u32;
                let blocking_factor = (room as u32 / record_size).min(random.between(1, 8) as u32);
                let objects = random.between(1, 40);
                let locking = if random.chance(0.5) { Locking::Record } else { Locking::Page };
                PartitionSpec::new(name, Organization::Direct { objects, blocking_factor, record_size }, locking)
            }
            ShapeKind::Append => {
                let blocking_factor = *random.choose(&[0, 0, 1, 3]).expect("there are some");
                PartitionSpec::new(name, Organization::Append { blocking_factor }, any)
            }
            ShapeKind::Set => PartitionSpec::new(name, set(false), Locking::Record),
            ShapeKind::Arrivals => {
                let locking = if any == Locking::Page { Locking::Record } else { any };
                PartitionSpec::new(name, set(true), locking)
            }
            ShapeKind::Typed => {
                PartitionSpec::new(name, set(false), Locking::Record).record(typed()).index(index(is_unique))
            }
        };
        let device = if random.chance(0.3) { "flash" } else { "disk" };
        let spec = PartitionSpec { device: device.into(), ..spec };
        Shape { kind, is_unique, spec, contents: RecordsByNumber::new() }
    }

    /// A partition that takes next to nothing; one in `appended` is appended to, and so has a first page in the log.
    pub fn small(name: &str, number: u64, appended: u64) -> Shape {
        let organization = Organization::Direct { objects: 1, blocking_factor: 1, record_size: 8 };
        let (kind, spec) = match number % appended {
            0 => (ShapeKind::Append, PartitionSpec::append(name)),
            _ => (ShapeKind::Direct, PartitionSpec::new(name, organization, Locking::Page)),
        };
        Shape { kind, is_unique: false, spec, contents: RecordsByNumber::new() }
    }
}

impl Shape {
    /// The same with other contents.
    pub fn with(&self, contents: RecordsByNumber) -> Shape {
        Shape { contents, ..self.clone() }
    }

    /// The same under another name.
    pub fn renamed(&self, name: &str) -> Shape {
        Shape { spec: PartitionSpec { name: name.to_owned(), ..self.spec.clone() }, ..self.clone() }
    }

    /// Its secondary index.
    pub fn index(&self) -> IndexSpec {
        index(self.is_unique)
    }

    /// Whether two records have the same group, which may not be while a unique index is there.
    pub fn has_twice(&self) -> bool {
        let mut groups = BTreeSet::new();
        self.is_unique && !self.contents.values().all(|record| groups.insert(group(record)))
    }

    /// How many objects it has, if they are found by number.
    pub fn objects(&self) -> u64 {
        match self.spec.organization {
            Organization::Direct { objects, .. } => objects,
            _ => 0,
        }
    }

    /// The longest value in bytes that its record may have within a page, or a segment.
    pub fn length_max(&self, page_size: usize) -> usize {
        match self.kind {
            ShapeKind::Tree | ShapeKind::TypedTree => engine::organization::b_tree::value_len_max(page_size, 8),
            ShapeKind::Direct => self.object_size(),
            ShapeKind::Append => append::length_max(page_size),
            ShapeKind::Set | ShapeKind::Arrivals | ShapeKind::Typed => SEGMENT_SIZE as usize - SEGMENT_OVERHEAD,
        }
    }

    fn object_size(&self) -> usize {
        match self.spec.organization {
            Organization::Direct { record_size, .. } => record_size as usize,
            _ => 0,
        }
    }

    /// A value of about `length` bytes for the record of this number, which is its group if the index is unique.
    pub fn value(&self, number: u64, length: usize, random: &mut Random) -> Rc<[u8]> {
        let fill = |random: &mut Random, length: usize| {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            bytes
        };
        match self.kind {
            ShapeKind::Tree | ShapeKind::Set => fill(random, length).into(),
            ShapeKind::Direct => {
                let mut object = fill(random, self.object_size());
                // An object that was written is never all zeros; objects of zeros were never written.
                object[0] |= 1;
                object.into()
            }
            ShapeKind::Append | ShapeKind::Arrivals => {
                let mut record = number.to_be_bytes().to_vec();
                record.extend_from_slice(&fill(random, length.saturating_sub(8)));
                record.into()
            }
            ShapeKind::Typed | ShapeKind::TypedTree => {
                let filler = fill(random, length.saturating_sub(TYPED_OVERHEAD));
                let group = if self.is_unique { number } else { random.below(5) };
                let fields = [FieldValue::U32(group as u32), FieldValue::Bytes(&filler)];
                let mut record = Vec::new();
                typed().encode(&fields, &mut record).expect("it is of the type");
                record.into()
            }
        }
    }
}

/// The number of a record that begins with it.
pub fn arrival(record: &[u8]) -> u64 {
    record.first_chunk().map_or(u64::MAX, |first| u64::from_be_bytes(*first))
}

/// The key of a record.
pub fn stored_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The group of a typed record: where the secondary index has it.
pub fn group(record: &[u8]) -> Option<u32> {
    match typed().decode(record, 0).ok()? {
        FieldValue::U32(group) => Some(group),
        _ => None,
    }
}

/// The secondary index of typed records.
fn index(is_unique: bool) -> IndexSpec {
    IndexSpec { is_unique, ..IndexSpec::new(INDEX_NAME, &["group"]) }
}

fn typed() -> RecordType {
    RecordType::new([("group", FieldType::U32), ("filler", FieldType::Bytes)]).expect("different names")
}
