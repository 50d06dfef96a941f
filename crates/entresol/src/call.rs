//! Calls of procedures on their way to the engine's thread.

use smallvec::SmallVec;

/// How many bytes a call may have that is sent without an allocation: of most procedures, name and parameters.
const INLINE: usize = 96;

/// A procedure's name and parameters in one piece. What a thread allocates and another one frees takes both of them longer, and what
/// the engine has to fetch from somewhere else in another processor's cache keeps all requests waiting.
pub(crate) struct Call {
    bytes: SmallVec<[u8; INLINE]>,
    name_length: usize,
}

impl Call {
    pub fn new(name: &str, parameters: &[u8]) -> Call {
        let mut bytes = SmallVec::with_capacity(name.len() + parameters.len());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(parameters);
        Call { bytes, name_length: name.len() }
    }

    pub fn name(&self) -> &str {
        str::from_utf8(&self.bytes[..self.name_length]).expect("it was a string")
    }

    pub fn parameters(&self) -> &[u8] {
        &self.bytes[self.name_length..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_call_is_what_was_sent(name in ".{0,40}", parameters in proptest::collection::vec(any::<u8>(), 0..200)) {
            let call = Call::new(&name, &parameters);
            prop_assert_eq!((call.name(), call.parameters()), (name.as_str(), parameters.as_slice()));
        }
    }
}
