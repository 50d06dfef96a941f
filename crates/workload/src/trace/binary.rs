//! Traces in binary, version 1.
//!
//! ```text
//! file        = "\x93ENTRACE" version:u16 = 1, tables, block*, end
//! tables      = part "tables"
//!               partitions:v (name objects:v blocking-factor:v locks:byte)*    locks: 0 page, 1 object, 2 none
//!               types:v (name rate:f64)*                                       rate: 0 if unknown
//! block       = part "block"
//!               transactions:v (type:v references:v reference*)*
//! reference   = head:v, difference:zigzag v                      head: partition * 2, + 1 if it changes the object
//! end         = part "end": transactions:v references:v, then nothing
//! part        = kind:byte length:u32 bytes checksum:u32          kind: 1 tables, 2 block, 3 end
//! name        = length:byte bytes
//! ```
//!
//! Numbers of fixed length have their least byte first; `v` are LEB128 (seven bits a byte, least first, the top bit says
//! that more follow). The difference is that between the object's number and the number of the previous reference to the
//! partition in the same block (0 before the first), wrapping. Checksums are CRC-32C over kind, length and bytes. A block
//! holds whole transactions.

use super::{Partition, Place, Problem, Reference, Trace, TraceError, Type};
use base::varint;
use engine::catalog::Locking;

/// The first bytes of a binary trace; no text begins with them.
pub const MAGIC: [u8; 8] = *b"\x93ENTRACE";
/// The version that is written.
pub const VERSION: u16 = 1;

const TABLES: u8 = 1;
const BLOCK: u8 = 2;
const END: u8 = 3;
/// Kind and length before a part's bytes.
const HEAD: usize = 5;
const CHECKSUM: usize = 4;
/// About how many bytes a block has before the next begins.
const BLOCK_SIZE: usize = 64 << 10;
const LOCKS: [Locking; 3] = [Locking::Page, Locking::Record, Locking::None];

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

impl Trace {
    /// The trace in the binary format.
    pub fn to_binary(&self) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        put_part(&mut file, TABLES, &self.tables());
        let mut block = Block::default();
        for transaction in self.transactions() {
            block.push(transaction.kind, transaction.references);
            if block.bytes.len() >= BLOCK_SIZE {
                put_part(&mut file, BLOCK, &std::mem::take(&mut block).finish());
            }
        }
        if block.transactions > 0 {
            put_part(&mut file, BLOCK, &block.finish());
        }
        let mut end = Vec::new();
        varint::put(self.len() as u64, &mut end);
        varint::put(self.references().len() as u64, &mut end);
        put_part(&mut file, END, &end);
        file
    }

    fn tables(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint::put(self.partitions().len() as u64, &mut bytes);
        for Partition { name, objects, blocking_factor, locks } in self.partitions() {
            put_name(&mut bytes, name);
            varint::put(*objects, &mut bytes);
            varint::put((*blocking_factor).into(), &mut bytes);
            bytes.push(LOCKS.iter().position(|known| known == locks).expect("all locks are known") as u8);
        }
        varint::put(self.types().len() as u64, &mut bytes);
        for Type { name, rate_per_s } in self.types() {
            put_name(&mut bytes, name);
            bytes.extend(rate_per_s.unwrap_or_default().to_le_bytes());
        }
        bytes
    }
}

/// A block being written.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    transactions: u64,
    latest: LatestObjects,
}

/// The object that each partition's previous reference was to.
#[derive(Default)]
struct LatestObjects(Vec<u64>);

impl LatestObjects {
    fn of(&mut self, partition: u16) -> &mut u64 {
        let index = usize::from(partition);
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        &mut self.0[index]
    }
}

impl Block {
    fn push(&mut self, kind: u16, references: &[Reference]) {
        self.transactions += 1;
        varint::put(kind.into(), &mut self.bytes);
        varint::put(references.len() as u64, &mut self.bytes);
        for Reference { partition, write, object } in references {
            varint::put(u64::from(*partition) << 1 | u64::from(*write), &mut self.bytes);
            let latest = self.latest.of(*partition);
            let difference = object.wrapping_sub(*latest) as i64;
            varint::put((difference << 1 ^ difference >> 63) as u64, &mut self.bytes);
            *latest = *object;
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint::put(self.transactions, &mut bytes);
        bytes.extend(self.bytes);
        bytes
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(name.len() as u8);
    bytes.extend(name.as_bytes());
}

pub(super) fn put_part(file: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let start = file.len();
    file.push(kind);
    let length = u32::try_from(bytes.len()).expect("a part is shorter than 4 GiB");
    file.extend(length.to_le_bytes());
    file.extend(bytes);
    let sum = checksum(&file[start..]);
    file.extend(sum.to_le_bytes());
}

/// Reads a trace.
///
/// # Errors
/// [`TraceError`] with the byte and the record.
pub fn read(file: &str, bytes: &[u8]) -> Result<Trace, TraceError> {
    let mut reader = ByteReader { bytes, at: 0, part: "header", record: 1, trace: Trace::new() };
    match reader.read() {
        Ok(()) => Ok(reader.trace),
        Err(problem) => {
            let place = Place::Byte { offset: reader.at as u64, part: reader.part, record: reader.record };
            Err(TraceError::new(file, place, problem, ""))
        }
    }
}

/// A place in the bytes, and which record it belongs to.
struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
    part: &'static str,
    record: u64,
    trace: Trace,
}

type Read<T> = Result<T, Problem>;

impl ByteReader<'_> {
    fn read(&mut self) -> Read<()> {
        if self.take(MAGIC.len())? != MAGIC {
            self.at = 0;
            return Err(Problem::NotATrace);
        }
        let version = u16::from_le_bytes(self.array()?);
        if version != VERSION {
            self.at -= 2;
            return Err(Problem::Version(version.to_string()));
        }
        self.enter("part", 1);
        let end = self.open(TABLES, "tables")?;
        self.tables()?;
        self.close(end)?;
        loop {
            self.enter("transaction", self.trace.len() as u64 + 1);
            match self.bytes.get(self.at) {
                Some(&END) => return self.end(),
                _ => self.block()?,
            }
        }
    }

    fn enter(&mut self, part: &'static str, record: u64) {
        (self.part, self.record) = (part, record);
    }

    fn take(&mut self, count: usize) -> Read<&[u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let taken = taken.ok_or(Problem::CutOff("bytes are missing"))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes as asked for"))
    }

    fn number(&mut self) -> Read<u64> {
        let start = self.at;
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        self.at = start;
        Err(Problem::WrongField { what: "number of at most 64 bits", found: "this".to_owned() })
    }

    fn name(&mut self) -> Read<String> {
        let [length] = self.array()?;
        let bytes = self.take(length.into())?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Enters a part, whose bytes are whole; returns where it ends.
    fn open(&mut self, kind: u8, name: &'static str) -> Read<usize> {
        let start = self.at;
        let [found] = self.array()?;
        if found != kind {
            self.at = start;
            let allowed = format!("{kind} ({name})");
            return Err(Problem::OutOfRange { what: "kind of the part", found: found.into(), allowed });
        }
        let length = u32::from_le_bytes(self.array()?) as usize;
        self.take(length)?;
        let sum = u32::from_le_bytes(self.array()?);
        let end = start + HEAD + length;
        self.at = start;
        if checksum(&self.bytes[start..end]) != sum {
            return Err(Problem::Checksum(name));
        }
        self.at = start + HEAD;
        Ok(end)
    }

    /// Leaves a part, which must be read to its end.
    fn close(&mut self, end: usize) -> Read<()> {
        if self.at != end {
            return Err(Problem::Fields("a part holds another number of bytes than its fields need".to_owned()));
        }
        self.at += CHECKSUM;
        Ok(())
    }

    fn tables(&mut self) -> Read<()> {
        for record in 1..=self.number()? {
            self.enter("partition", record);
            let start = self.at;
            let (name, objects, factor) = (self.name()?, self.number()?, self.number()?);
            let [locks] = self.array()?;
            let unknown = || Problem::OutOfRange { what: "lock", found: locks.into(), allowed: "0 to 2".to_owned() };
            let locks = *LOCKS.get(usize::from(locks)).ok_or_else(unknown)?;
            let blocking_factor = u32::try_from(factor).unwrap_or(u32::MAX);
            let added = self.trace.add_partition(Partition { name, objects, blocking_factor, locks });
            self.placed(start, added)?;
        }
        self.enter("type", 0);
        for record in 1..=self.number()? {
            self.enter("type", record);
            let start = self.at;
            let (name, rate) = (self.name()?, f64::from_le_bytes(self.array()?));
            let added = self.trace.add_type(Type { name, rate_per_s: (rate != 0.0).then_some(rate) });
            self.placed(start, added)?;
        }
        Ok(())
    }

    /// Puts the place of an error at the front of what is wrong.
    fn placed<T>(&mut self, start: usize, result: Read<T>) -> Read<()> {
        if result.is_err() {
            self.at = start;
        }
        result.map(|_| ())
    }

    fn block(&mut self) -> Read<()> {
        let end = self.open(BLOCK, "block")?;
        let mut latest = LatestObjects::default();
        for _ in 0..self.number()? {
            self.enter("transaction", self.trace.len() as u64 + 1);
            let start = self.at;
            let kind = self.number()?;
            let known = self.trace.types().len();
            if kind >= known as u64 {
                self.at = start;
                return Err(Problem::NoSuchType { number: kind, known });
            }
            self.trace.begin(kind as u16);
            for _ in 0..self.number()? {
                self.reference(&mut latest)?;
            }
        }
        self.close(end)
    }

    fn reference(&mut self, latest: &mut LatestObjects) -> Read<()> {
        let start = self.at;
        let head = self.number()?;
        let known = self.trace.partitions().len();
        if head >> 1 >= known as u64 {
            self.at = start;
            return Err(Problem::NoSuchPartition { number: head >> 1, known });
        }
        let zigzag = self.number()?;
        let partition = (head >> 1) as u16;
        let latest = latest.of(partition);
        *latest = latest.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg());
        let reference = Reference { partition, write: head & 1 == 1, object: *latest };
        let added = self.trace.refer(reference);
        self.placed(start, added)
    }

    fn end(&mut self) -> Read<()> {
        self.enter("end", 1);
        let end = self.open(END, "end")?;
        for (what, read) in
            [("transactions", self.trace.len() as u64), ("references", self.trace.references().len() as u64)]
        {
            let start = self.at;
            let found = self.number()?;
            if found != read {
                self.at = start;
                return Err(Problem::Count { what, found, read });
            }
        }
        self.close(end)?;
        if self.at != self.bytes.len() {
            return Err(Problem::TrailingBytes);
        }
        Ok(())
    }
}
