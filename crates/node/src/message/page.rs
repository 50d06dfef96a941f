//! A page that is sent, of which the bytes are in a frame of the sender's and go to one of the receiver's: neither has to have them beside
//! that.

use super::form::raw;
use super::{Copy, LeavingFate, MessageError, frame};
use crate::message::Message;
use serde::ser::SerializeStructVariant;
use serde::{Deserialize, Serialize, Serializer};

/// An [`Answer::Page`](super::Answer::Page), in the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct PageAnswer<'a> {
    /// Which copy it is.
    pub copy: Copy,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What becomes of the copy that leaves the client's memory for it.
    pub fate: LeavingFate,
}

/// Which answer that is.
const NUMBER: u32 = 5;

impl<'a> PageAnswer<'a> {
    /// Whether a whole frame is said to have one.
    pub(crate) fn is_in_frame(bytes: &[u8]) -> bool {
        matches!(frame::body(bytes), [number, ..] if u32::from(*number) == NUMBER)
    }

    /// The page in a whole frame, if that is one with a page.
    ///
    /// # Errors
    /// [`MessageError::Malformed`].
    pub fn in_frame(bytes: &'a [u8]) -> Result<Option<PageAnswer<'a>>, MessageError> {
        match frame::body(bytes) {
            [number, page @ ..] if u32::from(*number) == NUMBER => frame::message(page).map(Some),
            _ => Ok(None),
        }
    }
}

impl Serialize for PageAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Raw<'a>(#[serde(serialize_with = "raw::serialize")] &'a [u8]);

        let mut answer = serializer.serialize_struct_variant("Answer", NUMBER, "Page", 3)?;
        answer.serialize_field("copy", &self.copy)?;
        answer.serialize_field("bytes", &Raw(self.bytes))?;
        answer.serialize_field("fate", &self.fate)?;
        answer.end()
    }
}

impl Message for PageAnswer<'_> {
    fn kind(&self) -> &'static str {
        "page"
    }

    fn images(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Answer, decode, encode};
    use base::{PageId, PartitionId};

    #[test]
    fn it_has_the_form_of_an_answer() {
        let copy = Copy { page: PageId::new(PartitionId(7), 300), number: 1 << 40 };
        for (bytes, fate) in [(vec![3; 4096], LeavingFate::Offered), (Vec::new(), LeavingFate::Dropped)] {
            let page = PageAnswer { copy, bytes: &bytes, fate };
            let (mut frame, mut same) = (Vec::new(), Vec::new());
            encode(&page, 0, &mut frame);
            encode(&Answer::Page { copy, bytes: bytes.clone(), fate }, 0, &mut same);
            assert_eq!(frame, same);
            assert!(PageAnswer::is_in_frame(&frame));
            assert_eq!(PageAnswer::in_frame(&frame), Ok(Some(page)));
            assert!(PageAnswer::in_frame(&frame[..frame.len() - 1]).is_err());
            assert_eq!(decode(&frame), Ok(Answer::Page { copy, bytes, fate }));
        }
        let mut other = Vec::new();
        encode(&Answer::Renewed { sent: 5 }, 0, &mut other);
        assert_eq!(PageAnswer::in_frame(&other), Ok(None));
        assert_eq!(PageAnswer::in_frame(&[]), Ok(None));
        assert!(!PageAnswer::is_in_frame(&other));
    }
}
