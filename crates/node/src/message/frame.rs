//! Messages as frames of bytes, and why bytes are none.

use super::{HEAD_SIZE, LIST_MAX, SIZE_MAX, VERSION};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why bytes of a peer are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Another version.
    #[error("the peer's messages have version {0}, this node's {VERSION}: run the same release on both")]
    Version(u8),
    /// Too long.
    #[error("a message of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// How many bytes it has.
        length: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A record of TLS (RFC 8446, section 5.1).
    #[error("the peer speaks TLS, and this node does not: give it a certificate, a key and an authority")]
    Sealed,
    /// Not the form of one.
    #[error("bytes of the peer are no message: {0}")]
    Malformed(String),
}

/// Appends a message's frame. It is filled up to `size_min` bytes with zeros behind the message, where messages are to have at
/// least a described length.
///
/// # Panics
/// If the message is longer than [`SIZE_MAX`]: the code that makes one keeps it shorter.
pub fn encode<M: Serialize>(message: &M, size_min: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_SIZE]);
    postcard::serialize_with_flavor(message, Appended(out)).expect("memory takes any message");
    let end = out.len().max(start + size_min);
    out.resize(end, 0);
    let length = out.len() - start - HEAD_SIZE;
    assert!(length <= SIZE_MAX, "a message of {length} bytes");
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 4] = VERSION;
}

/// Memory behind which a message is put. Pieces of it are copied whole.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// How long the frame at the front of `bytes` is, as far as that can be told; `None` if more bytes have to come first. The message in
/// it may have up to `limit` bytes.
///
/// # Errors
/// [`MessageError::Version`], [`MessageError::Sealed`], [`MessageError::TooLong`].
pub fn frame_size(bytes: &[u8], limit: usize) -> Result<Option<usize>, MessageError> {
    let Some((head, _)) = bytes.split_at_checked(HEAD_SIZE) else { return Ok(None) };
    let is_tls = matches!(head[0], 20..=22) && head[1] == 3 && head[2] <= 4;
    if is_tls && head[4] != VERSION {
        return Err(MessageError::Sealed);
    }
    if head[4] != VERSION {
        return Err(MessageError::Version(head[4]));
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > limit {
        return Err(MessageError::TooLong { length, limit });
    }
    Ok(Some(HEAD_SIZE + length))
}

/// Reads the message of a whole frame.
///
/// # Errors
/// [`MessageError::Malformed`], as for lists over [`LIST_MAX`].
pub fn decode<'a, M: Deserialize<'a>>(frame: &'a [u8]) -> Result<M, MessageError> {
    message(body(frame))
}

/// What stands behind a frame's head.
pub(super) fn body(frame: &[u8]) -> &[u8] {
    frame.get(HEAD_SIZE..).unwrap_or_default()
}

/// Reads a message, or the rest of one, up to the end of its frame.
pub(super) fn message<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, MessageError> {
    let (message, rest) =
        postcard::take_from_bytes::<M>(body).map_err(|error| MessageError::Malformed(words(&error)))?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(MessageError::Malformed("there is more behind its end".to_owned()));
    }
    Ok(message)
}

/// What is wrong with bytes. The form's own errors lose their words on the way.
fn words(error: &postcard::Error) -> String {
    match error {
        postcard::Error::SerdeDeCustom => {
            format!("a list is over the limit of {LIST_MAX}, or a number names no page")
        }
        error => error.to_string(),
    }
}
