//! How parts of messages stand in bytes.

/// A page id as one number.
pub mod packed {
    use base::{PageId, PartitionId};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(page: &PageId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(page.packed())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PageId, D::Error> {
        let word = u64::deserialize(deserializer)?;
        let page = PageId::unpacked(word);
        let is_page = page.packed() == word && page.partition != PartitionId(u16::MAX);
        if is_page { Ok(page) } else { Err(D::Error::custom("a number that names no page")) }
    }
}

/// A list of page ids, of at most [`LIST_MAX`](super::LIST_MAX).
pub mod packed_list {
    use super::{list, packed};
    use base::PageId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Packed(#[serde(with = "packed")] PageId);

    pub fn serialize<S: Serializer>(pages: &[PageId], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pages.iter().copied().map(Packed))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<PageId>, D::Error> {
        Ok(list::deserialize(deserializer)?.into_iter().map(|Packed(page)| page).collect())
    }
}

/// Bytes in one piece, rather than as a list of numbers.
pub mod raw {
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// A list of at most [`LIST_MAX`](super::LIST_MAX) elements.
pub mod list {
    use super::super::LIST_MAX;
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::marker::PhantomData;

    pub fn serialize<S: Serializer, T: Serialize>(elements: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        elements.serialize(serializer)
    }

    pub fn deserialize<'a, D: Deserializer<'a>, T: Deserialize<'a>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        struct Elements<T>(PhantomData<T>);
        impl<'a, T: Deserialize<'a>> Visitor<'a> for Elements<T> {
            type Value = Vec<T>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
                if elements.size_hint().is_some_and(|length| length > LIST_MAX) {
                    return Err(A::Error::custom("the list is too long"));
                }
                // It grows with what has come, whatever its length claims.
                let mut list = Vec::new();
                while let Some(element) = elements.next_element()? {
                    if list.len() == LIST_MAX {
                        return Err(A::Error::custom("the list is too long"));
                    }
                    list.push(element);
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}
