use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

/// A field's contents, owned.
#[derive(Clone, Debug)]
enum Owned {
    Number(FieldType, u64),
    Bytes(FieldType, Vec<u8>),
    Text(String),
}

impl Owned {
    fn kind(&self) -> FieldType {
        match self {
            Owned::Number(kind, _) | Owned::Bytes(kind, _) => *kind,
            Owned::Text(_) => FieldType::Text,
        }
    }

    fn value(&self) -> FieldValue<'_> {
        match self {
            Owned::Number(FieldType::U8, number) => FieldValue::U8(*number as u8),
            Owned::Number(FieldType::U16, number) => FieldValue::U16(*number as u16),
            Owned::Number(FieldType::U32, number) => FieldValue::U32(*number as u32),
            Owned::Number(FieldType::U64, number) => FieldValue::U64(*number),
            Owned::Number(FieldType::I64, number) => FieldValue::I64(*number as i64),
            Owned::Number(_, number) => FieldValue::F64(f64::from_bits(*number)),
            Owned::Bytes(_, bytes) => FieldValue::Bytes(bytes),
            Owned::Text(text) => FieldValue::Text(text),
        }
    }
}

/// Two contents of one type.
fn contents() -> impl Strategy<Value = (Owned, Owned)> {
    use FieldType::{Array, Bytes, F64, I64, U8, U16, U32, U64};
    let kinds = prop::sample::select(vec![U8, U16, U32, U64, I64, F64]);
    let few = || prop::collection::vec(0..3_u8, 0..6);
    prop_oneof![
        (kinds, any::<u64>(), any::<u64>()).prop_map(|(kind, a, b)| (Owned::Number(kind, a), Owned::Number(kind, b))),
        (few(), few()).prop_map(|(a, b)| (Owned::Bytes(Bytes, a), Owned::Bytes(Bytes, b))),
        prop::collection::vec((0..3_u8, 0..3_u8), 0..6).prop_map(|pairs| {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let kind = Array(a.len() as u16);
            (Owned::Bytes(kind, a), Owned::Bytes(kind, b))
        }),
        (".{0,5}", ".{0,5}").prop_map(|(a, b)| (Owned::Text(a), Owned::Text(b))),
    ]
}

/// Whether both are the same to the bit.
fn is_same(one: &FieldValue<'_>, other: &FieldValue<'_>) -> bool {
    one.kind() == other.kind() && one.with_bytes(<[u8]>::to_vec) == other.with_bytes(<[u8]>::to_vec)
}

fn compare(one: &FieldValue<'_>, other: &FieldValue<'_>) -> Ordering {
    match (one, other) {
        (FieldValue::U8(one), FieldValue::U8(other)) => one.cmp(other),
        (FieldValue::U16(one), FieldValue::U16(other)) => one.cmp(other),
        (FieldValue::U32(one), FieldValue::U32(other)) => one.cmp(other),
        (FieldValue::U64(one), FieldValue::U64(other)) => one.cmp(other),
        (FieldValue::I64(one), FieldValue::I64(other)) => one.cmp(other),
        (FieldValue::F64(one), FieldValue::F64(other)) => one.total_cmp(other),
        (FieldValue::Bytes(one), FieldValue::Bytes(other)) => one.cmp(other),
        (FieldValue::Text(one), FieldValue::Text(other)) => one.cmp(other),
        _ => panic!("both are of one type"),
    }
}

fn record_type(contents: &[(Owned, Owned)]) -> RecordType {
    let fields = contents.iter().enumerate();
    let fields = fields.map(|(number, (owned, _))| Field { name: format!("f{number}"), kind: owned.kind() });
    fields.collect::<Vec<Field>>().try_into().expect("different names")
}

fn encode(record_type: &RecordType, values: &[FieldValue<'_>]) -> Vec<u8> {
    let mut stored = Vec::new();
    record_type.encode(values, &mut stored).expect("contents of the type");
    stored
}

proptest! {
    #[test]
    fn records_agree_with_their_contents(contents in prop::collection::vec(contents(), 0..8)) {
        let record_type = record_type(&contents);
        let mut values: Vec<FieldValue<'_>> = contents.iter().map(|(old, _)| old.value()).collect();
        let mut record = encode(&record_type, &values);
        for (field, (_, new)) in contents.iter().enumerate() {
            values[field] = new.value();
            match record_type.part(field) {
                Ok(part) => record_type.write(field, &values[field], &mut record[part]).expect("a fixed field"),
                Err(error) => {
                    let is_wrong_kind = matches!(error, FieldError::WrongKind { .. });
                    prop_assert!(is_wrong_kind, "{}", error);
                    let mut replaced = Vec::new();
                    record_type.replace(&record, field, &values[field], &mut replaced).expect("a variable field");
                    record = replaced;
                }
            }
            for (number, value) in values.iter().enumerate() {
                prop_assert!(is_same(&record_type.decode(&record, number).expect("sound"), value));
            }
        }
        prop_assert_eq!(&record, &encode(&record_type, &values));
        prop_assert_eq!(record_type.verify(&record), Ok(()));
        let surplus = [&record[..], &[0]].concat();
        prop_assert_eq!(record_type.verify(&surplus), Err(FieldError::Surplus(1)));
        if let Some((_, cut_off)) = record.split_last() {
            prop_assert!(record_type.verify(cut_off).is_err());
        }
        for field in record_type.fields() {
            prop_assert_eq!(field.kind.to_string().parse(), Ok(field.kind));
        }
        let stored = postcard::to_stdvec(&record_type).expect("fields can be stored");
        prop_assert_eq!(postcard::from_bytes::<RecordType>(&stored).expect("and read"), record_type);
    }

    #[test]
    fn the_ordered_form_orders_as_the_contents_do(contents in prop::collection::vec(contents(), 1..4)) {
        let record_type = record_type(&contents);
        let ordered = |values: &[FieldValue<'_>]| {
            let (record, mut out) = (encode(&record_type, values), Vec::new());
            for field in 0..values.len() {
                record_type.encode_ordered(&record, field, &mut out).expect("sound");
            }
            let (fields, mut bound): (Vec<usize>, _) = ((0..values.len()).collect(), Vec::new());
            record_type.encode_bound(&fields, values, &mut bound).expect("contents of the type");
            assert_eq!(bound, out, "a bound is what a record has");
            out
        };
        let one: Vec<FieldValue<'_>> = contents.iter().map(|(one, _)| one.value()).collect();
        let other: Vec<FieldValue<'_>> = contents.iter().map(|(_, other)| other.value()).collect();
        let expected = one.iter().zip(&other).map(|(one, other)| compare(one, other)).find(|order| order.is_ne());
        prop_assert_eq!(ordered(&one).cmp(&ordered(&other)), expected.unwrap_or(Ordering::Equal));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(
        contents in prop::collection::vec(contents(), 0..8), record in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let record_type = record_type(&contents);
        for field in 0..contents.len() + 1 {
            let _ = record_type.decode(&record, field);
            let _ = record_type.verify(&record);
            let _ = record_type.encode_ordered(&record, field, &mut Vec::new());
            let _ = record_type.replace(&record, field, &FieldValue::Bytes(&[1]), &mut Vec::new());
        }
    }
}

#[test]
fn what_does_not_suit_is_named() {
    use FieldType::{Array, Bytes, Text, U16};
    let twice = RecordType::new([("a", U16), ("a", Text)]);
    assert_eq!(twice.expect_err("a name is given once").to_string(), "there are two fields 'a'; names are given once");
    let record_type =
        RecordType::new([("number", U16), ("zip", Array(5)), ("name", Text), ("rest", Bytes)]).expect("ok");
    let name = record_type.field("name").expect("it is there");
    assert_eq!(record_type.field("town"), Err(FieldError::Unknown("town".to_owned())));
    let encode = |zip, name, rest| {
        let mut out = vec![7];
        let values = [FieldValue::U16(1), FieldValue::Bytes(zip), name, FieldValue::Bytes(rest)];
        let done = record_type.encode(&values, &mut out);
        assert!(done.is_ok() || out == [7]);
        done.map_err(|error| error.to_string())
    };
    let text = FieldValue::Text("Ada");
    assert_eq!(encode(b"12345", text, b""), Ok(()));
    assert_eq!(encode(b"1234", text, b""), Err("field 'zip' holds 5 bytes, not 4".to_owned()));
    assert_eq!(encode(b"12345", FieldValue::U8(1), b""), Err("field 'name' holds text, not u8".to_owned()));
    let long = encode(b"12345", text, &[0; 65_533]).expect_err("too long");
    assert_eq!(long, "with field 'rest' the variable fields have 65536 bytes, over the limit of 65535");
    let fixed = record_type.part(name).expect_err("a variable field");
    assert_eq!(fixed.to_string(), "field 'name' holds text; only fixed fields can be treated so");
    let too_few = record_type.encode(&[text], &mut Vec::new());
    assert_eq!(too_few, Err(FieldError::Count { expected: 4, found: 1 }));
    assert_eq!(record_type.decode(&[0; 6], 1), Err(FieldError::Damaged("zip".to_owned())));
}
