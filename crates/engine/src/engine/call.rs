//! A transaction as the call of a procedure: what the log keeps of it where procedures are logged (TOPER: Garcia-Molina and
//! Salem, System M, 1988, section 4).
//!
//! A restart runs the procedures again, one after the other in the order of their commit records. That ends in the same state
//! because locks are held until the commit record stands in the log: a transaction that has read or changed what another one
//! changed has its record behind the other's, so running them in the order of the records is one of the orders that their locks
//! permit. A call keeps the numbers that sets gave to its arrivals, because these do not follow from the order of commits.
//!
//! What a transaction has done otherwise would not come out the same again: it was no procedure, or has referred to pages, or
//! has scanned a set without locks. Its changes of sets are logged as actions, which are repeated at their place in that order.
//! So a procedure that is run again finds the changes of both kinds.

use std::cell::Cell;
use structures::page::change::{put_bytes, take_bytes, take_u64};

/// The call that a transaction is.
#[derive(Debug, Default)]
pub(crate) struct Call {
    name: Vec<u8>,
    parameters: Vec<u8>,
    /// The numbers given to arrivals; of a call that is repeated: those to be given, the last one first.
    numbers: Vec<u64>,
    state: Cell<CallState>,
}

/// What a call is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallState {
    /// Nothing: there is none, or it would not come out the same again.
    #[default]
    Nothing,
    /// It is logged.
    Logged,
    /// It is being repeated from the log.
    Replayed,
}

/// A call as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredCall<'a> {
    pub name: &'a [u8],
    pub parameters: &'a [u8],
    numbers: &'a [u8],
}

impl<'a> StoredCall<'a> {
    /// Reads the stored form; `None` if it is none.
    pub fn decode(mut input: &'a [u8]) -> Option<StoredCall<'a>> {
        let input = &mut input;
        let (name, parameters, numbers) = (take_bytes(input)?, take_bytes(input)?, *input);
        numbers.len().is_multiple_of(8).then_some(StoredCall { name, parameters, numbers })
    }
}

impl Call {
    /// Notes what the transaction runs.
    pub fn begin(&mut self, name: &str, parameters: &[u8]) {
        self.end();
        self.name.extend_from_slice(name.as_bytes());
        self.parameters.extend_from_slice(parameters);
        self.state.set(CallState::Logged);
    }

    /// Begins to repeat a call.
    pub fn begin_replay(&mut self, stored: &StoredCall<'_>) {
        self.end();
        let mut numbers = stored.numbers;
        while let Some(number) = take_u64(&mut numbers) {
            self.numbers.push(number);
        }
        self.numbers.reverse();
        self.state.set(CallState::Replayed);
    }

    /// Forgets all.
    pub fn end(&mut self) {
        self.name.clear();
        self.parameters.clear();
        self.numbers.clear();
        self.state.set(CallState::Nothing);
    }

    /// The transaction does what would not come out the same again. False if that must not be, because it is being repeated.
    #[inline]
    pub fn mark_not_replayable(&self) -> bool {
        let state = self.state.get();
        if state == CallState::Logged {
            self.state.set(CallState::Nothing);
        }
        state != CallState::Replayed
    }

    pub fn is_logged(&self) -> bool {
        self.state.get() == CallState::Logged
    }

    pub fn is_replay(&self) -> bool {
        self.state.get() == CallState::Replayed
    }

    /// The number for the next arrival of a call that is repeated; `None` if it had fewer.
    pub fn take_number(&mut self) -> Option<u64> {
        self.numbers.pop()
    }

    /// Notes the number that an arrival got.
    pub fn give_number(&mut self, number: u64) {
        if self.is_logged() {
            self.numbers.push(number);
        }
    }

    /// How many numbers are left to be given.
    pub fn numbers_left(&self) -> usize {
        self.numbers.len()
    }

    /// The length of the stored form in bytes.
    pub fn stored_len(&self) -> usize {
        8 + self.name.len() + self.parameters.len() + 8 * self.numbers.len()
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.name);
        put_bytes(out, &self.parameters);
        self.numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
}

#[cfg(test)]
impl Call {
    /// A call that is logged with these parameters.
    pub fn with_parameters(parameters: Vec<u8>) -> Call {
        Call { parameters, state: Cell::new(CallState::Logged), ..Call::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_survives_its_stored_form() {
        let mut call = Call::default();
        call.begin("pay", b"parameters");
        call.give_number(7);
        call.give_number(1 << 40);
        let mut stored = Vec::new();
        call.encode(&mut stored);
        assert_eq!(call.stored_len(), stored.len());
        let found = StoredCall::decode(&stored).expect("sound");
        assert_eq!((found.name, found.parameters), (&b"pay"[..], &b"parameters"[..]));
        let mut replayed = Call::default();
        replayed.begin_replay(&found);
        assert_eq!([(); 3].map(|()| replayed.take_number()), [Some(7), Some(1 << 40), None]);
        let ends = (0..stored.len()).filter(|end| StoredCall::decode(&stored[..*end]).is_some());
        assert!(ends.eq([stored.len() - 16, stored.len() - 8]), "only numbers can be missing from its end");
        assert!(call.mark_not_replayable() && !call.is_logged(), "it is not logged any more");
        assert!(!replayed.mark_not_replayable() && replayed.is_replay(), "it must not do that");
    }
}
