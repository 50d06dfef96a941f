use super::{ACCOUNT, CUSTOMER, HOT_CARD, SETS, Scale};
use engine::set::{FieldType, FieldValue, RecordType};
use engine::{Database, Error, PartitionSpec, Result};

/// The type of the records of this set. With its key (8 bytes) and the 16 bytes that a segment adds, a record has the paper's
/// expected size: account 52, customer 200, hot card 80, store 80 bytes.
///
/// # Panics
/// If there is no such set.
pub fn record(set: &str) -> RecordType {
    use FieldType::{Array, I64, Text, U32, U64};
    let fields: &[(&str, FieldType)] = match set {
        ACCOUNT => &[("limit", I64), ("used", I64), ("paid", I64), ("expires", U32)],
        CUSTOMER => &[("social_security_number", U64), ("name", Text), ("address", Text)],
        HOT_CARD => &[("attempts", U32), ("reported", U32), ("remark", Array(48))],
        super::STORE => &[("card_checks", U64), ("limit_checks", U64), ("sold", I64), ("name", Text)],
        _ => panic!("the workload has no set '{set}'"),
    };
    RecordType::new(fields.iter().copied()).expect("every name is given once")
}

/// Creates the four sets and fills them; `spec` says what each is, by name; `progress` hears how many records are loaded.
///
/// # Errors
/// The engine's.
pub async fn load(
    database: &Database,
    scale: Scale,
    spec: impl Fn(&str) -> Result<PartitionSpec>,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut done = 0;
    for name in SETS {
        let count = match name {
            ACCOUNT | CUSTOMER => scale.accounts,
            HOT_CARD => scale.hot_cards(),
            _ => scale.stores(),
        };
        let (partition, record) = (database.create_partition(spec(name)?).await?, record(name));
        let mut wrong = None;
        let records = (0..count).map_while(|number| {
            let mut value = Vec::new();
            let key = if name == HOT_CARD { scale.careless(2 * number) } else { number };
            match contents(name, key, &record, &mut value) {
                Ok(()) => Some((key.to_be_bytes(), value)),
                Err(error) => {
                    wrong = Some(error);
                    None
                }
            }
        });
        database.load_set(partition, records, |loaded| progress(done + loaded)).await?;
        if let Some(error) = wrong {
            return Err(Error::Field { partition: name.to_owned(), error });
        }
        done += count;
        progress(done);
    }
    Ok(())
}

/// Cents that an account may owe.
const LIMIT: i64 = 200_000;

fn contents(set: &str, number: u64, record: &RecordType, value: &mut Vec<u8>) -> Result<(), engine::set::FieldError> {
    let (name, address) = (name(set, number), address(number, 0));
    match set {
        ACCOUNT => {
            let zero = FieldValue::I64(0);
            record.encode(&[FieldValue::I64(LIMIT), zero, zero, FieldValue::U32(expires(number))], value)
        }
        CUSTOMER => {
            let secret = FieldValue::U64(100_000_000 + number);
            record.encode(&[secret, FieldValue::Text(&name), FieldValue::Text(&address)], value)
        }
        HOT_CARD => record.encode(&hot_card(1988), value),
        _ => {
            let (none, nothing) = (FieldValue::U64(0), FieldValue::I64(0));
            record.encode(&[none, none, nothing, FieldValue::Text(&name)], value)
        }
    }
}

/// The contents of the record of a card that is reported on this date.
pub(super) fn hot_card(date: u32) -> [FieldValue<'static>; 3] {
    const REMARK: &[u8; 48] = b"reported by telephone; the holder was identified";
    [FieldValue::U32(0), FieldValue::U32(date), FieldValue::Bytes(REMARK)]
}

/// When an account's card expires: one of 50 has expired.
fn expires(number: u64) -> u32 {
    if number % 50 == 49 { 1987 } else { 1990 }
}

/// The year in which everything happens.
pub(super) const TODAY: u32 = 1988;

/// A name of 24 letters on average for a customer, of 30 for a store.
fn name(set: &str, number: u64) -> String {
    let (word, shortest) = if set == CUSTOMER { ("Customer ", 15) } else { ("Store ", 21) };
    let length = shortest + number as usize % 19;
    let mut name = format!("{word}{number}");
    while name.len() < length {
        name.push('e');
    }
    name.truncate(length);
    name
}

/// An address of 140 letters on average, which depends on `version`.
pub(super) fn address(number: u64, version: u32) -> String {
    let mut address = format!("{} Nassau Street, {}", number % 997, version);
    let length = 120 + (number + u64::from(version)) as usize % 41;
    while address.len() < length {
        address.push_str(", Princeton, New Jersey");
    }
    address.truncate(length);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_sizes_of_the_paper() {
        for (set, expected) in SETS.into_iter().zip([52.0, 200.0, 80.0, 80.0]) {
            let (record, mut bytes) = (record(set), Vec::new());
            (0..10_000).for_each(|number| contents(set, number, &record, &mut bytes).expect("suits"));
            let mean = 16.0 + 8.0 + bytes.len() as f64 / 10_000.0;
            assert!((mean - expected).abs() < 1.0, "{set}: {mean} bytes");
        }
    }
}
