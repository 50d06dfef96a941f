use crate::fault::{fault_of, kind_of};
use crate::request::{Call, Request};
use crate::sockets::Exchange;
use base::Instant;
use driver::{DeviceId, Fault, FaultKind, FileId, Frame, Output, Token};
use std::io;

/// A read, write or sync that is not done yet.
pub(crate) struct Transfer {
    pub(crate) call: Call,
    pub(crate) file: FileId,
    pub(crate) device: DeviceId,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) done: u32,
    pub(crate) buffer: Option<Frame>,
    pub(crate) cancelled: bool,
    pub(crate) arrival: Instant,
    /// Whether its device's description does not have it done yet.
    pub(crate) delayed: bool,
    /// How it ended, if only the description holds it back.
    pub(crate) outcome: Option<Result<Output, Fault>>,
}

/// What is in flight under a slot.
pub(crate) enum Flight {
    /// A transfer.
    Transfer(Transfer),
    /// An operation of a socket.
    Exchange(Exchange),
    /// A file of this device and name is being opened.
    Open(DeviceId, String),
    /// A file of this device and name is being removed.
    Remove(DeviceId, String),
    /// A file is being resized.
    Resize(FileId),
    /// A listing or a computation: nothing has to be done when it ends.
    Other,
}

/// What the end of an attempt means for its transfer.
pub(crate) enum AttemptEnd {
    /// A rest is left, to be attempted again.
    Again,
    /// The transfer is done.
    Finished(Result<Output, Fault>),
}

impl Transfer {
    /// The request for what is left.
    pub(crate) fn request(
        &mut self,
        slot: u32,
        fd: i32,
        registered_file: Option<u32>,
        registered_buffer: Option<u16>,
    ) -> Request {
        let address = match &mut self.buffer {
            Some(buffer) => buffer[self.done as usize..self.length as usize].as_mut_ptr(),
            None => std::ptr::null_mut(),
        };
        let length = self.length - self.done;
        let offset = self.offset + u64::from(self.done);
        Request { slot, call: self.call, fd, registered_file, registered_buffer, address, length, offset }
    }

    /// Takes note of an attempt's result: bytes, or a negated error number. `path` names the file in a fault and
    /// `file_length` tells its present length.
    pub(crate) fn advance(
        &mut self,
        result: i32,
        path: impl Fn() -> String,
        file_length: impl Fn() -> io::Result<u64>,
    ) -> AttemptEnd {
        let interrupted = matches!(-result, libc::EINTR | libc::EAGAIN);
        if interrupted && !self.cancelled {
            return AttemptEnd::Again;
        }
        if result < 0 {
            let errno = if interrupted { libc::ECANCELED } else { -result };
            return AttemptEnd::Finished(Err(self.fault(errno, &path())));
        }
        self.done += result as u32;
        if self.done == self.length {
            return AttemptEnd::Finished(Ok(Output::Done));
        }
        // A short transfer: either the file ends here or the rest follows.
        match self.call {
            Call::Read => match file_length() {
                Ok(length) if result == 0 || length <= self.offset + u64::from(self.done) => {
                    AttemptEnd::Finished(Err(self.beyond_end(length, &path())))
                }
                Ok(_) => AttemptEnd::Again,
                Err(error) => {
                    AttemptEnd::Finished(Err(fault_of(&format!("asking '{}' for its length", path()), &error)))
                }
            },
            _ if result == 0 => AttemptEnd::Finished(Err(self.fault(libc::EIO, &path()))),
            _ => AttemptEnd::Again,
        }
    }

    /// What is attempted, in words.
    pub(crate) fn attempt(&self, path: &str) -> String {
        let Transfer { offset, length, .. } = self;
        match self.call {
            Call::Read => format!("reading {length} bytes at {offset} of '{path}'"),
            Call::Sync => format!("making '{path}' durable"),
            _ => format!("writing {length} bytes at {offset} of '{path}'"),
        }
    }

    fn fault(&self, errno: i32, path: &str) -> Fault {
        let hint = if errno == libc::EINVAL { " (direct I/O needs aligned offsets and lengths)" } else { "" };
        let error = io::Error::from_raw_os_error(errno);
        Fault::new(kind_of(errno), format!("{}: {error}{hint}", self.attempt(path)))
    }

    fn beyond_end(&self, length: u64, path: &str) -> Fault {
        Fault::new(FaultKind::EndOfFile, format!("{}: the file ends at {length}", self.attempt(path)))
    }
}

/// The operations in flight, by slot. A slot is used again once its operation has completed.
#[derive(Default)]
pub(crate) struct FlightTable {
    slots: Vec<Option<(Token, Flight)>>,
    free: Vec<u32>,
}

impl FlightTable {
    pub(crate) fn insert(&mut self, token: Token, flight: Flight) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some((token, flight));
        slot
    }

    /// # Panics
    /// If nothing is in flight under the slot: a completion came twice.
    pub(crate) fn remove(&mut self, slot: u32) -> (Token, Flight) {
        let flight = self.slots[slot as usize].take().expect("an operation completes once");
        self.free.push(slot);
        flight
    }

    /// The transfer of a slot.
    ///
    /// # Panics
    /// If something else or nothing is in flight under the slot.
    pub(crate) fn transfer(&mut self, slot: u32) -> &mut Transfer {
        match &mut self.slots[slot as usize] {
            Some((_, Flight::Transfer(transfer))) => transfer,
            _ => unreachable!("slot {slot} holds no transfer"),
        }
    }

    /// The exchange of a slot.
    ///
    /// # Panics
    /// If something else or nothing is in flight under the slot.
    pub(crate) fn exchange(&mut self, slot: u32) -> &mut Exchange {
        match &mut self.slots[slot as usize] {
            Some((_, Flight::Exchange(exchange))) => exchange,
            _ => unreachable!("slot {slot} holds no exchange"),
        }
    }

    /// Whether the operation of a slot is one of a socket.
    pub(crate) fn is_exchange(&self, slot: u32) -> bool {
        matches!(self.slots[slot as usize], Some((_, Flight::Exchange(_))))
    }

    /// The slots of all exchanges.
    pub(crate) fn exchanges(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|slot| self.is_exchange(*slot)).collect()
    }

    /// Where an operation is.
    pub(crate) fn find(&self, token: Token) -> Option<u32> {
        let named = |slot: &Option<(Token, Flight)>| slot.as_ref().is_some_and(|(owner, _)| *owner == token);
        self.slots.iter().position(named).map(|slot| slot as u32)
    }

    /// Whether the operation of a slot is a transfer.
    pub(crate) fn is_transfer(&self, slot: u32) -> bool {
        matches!(self.slots[slot as usize], Some((_, Flight::Transfer(_))))
    }

    /// When each transfer in flight on this device arrived.
    pub(crate) fn arrivals(&self, device: DeviceId) -> impl Iterator<Item = Instant> {
        self.slots.iter().filter_map(move |slot| match slot {
            Some((_, Flight::Transfer(transfer))) if transfer.device == device => Some(transfer.arrival),
            _ => None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives up the ownership of everything in flight without freeing it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(call: Call) -> Transfer {
        let buffer = Frame::allocate(1, 100).pop();
        Transfer {
            call,
            file: FileId(0),
            device: DeviceId(0),
            offset: 1000,
            length: 100,
            done: 0,
            buffer,
            cancelled: false,
            arrival: Instant::START,
            delayed: false,
            outcome: None,
        }
    }

    fn advance(transfer: &mut Transfer, result: i32, length: u64) -> Option<Result<Output, FaultKind>> {
        match transfer.advance(result, || "data/f".to_owned(), || Ok(length)) {
            AttemptEnd::Again => None,
            AttemptEnd::Finished(result) => Some(result.map_err(|fault| fault.kind)),
        }
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        for call in [Call::Read, Call::WriteDurable] {
            let mut transfer = transfer(call);
            let start = transfer.request(0, 3, None, None).address.addr();
            assert_eq!(advance(&mut transfer, 40, 5000), None);
            assert_eq!(advance(&mut transfer, -libc::EINTR, 5000), None);
            let rest = transfer.request(0, 3, None, None);
            assert_eq!((rest.offset, rest.length, rest.address.addr() - start), (1040, 60, 40));
            assert_eq!(advance(&mut transfer, 60, 5000), Some(Ok(Output::Done)));
        }
    }

    #[test]
    fn the_end_of_the_file_and_errors_are_faults() {
        assert_eq!(advance(&mut transfer(Call::Read), 50, 1050), Some(Err(FaultKind::EndOfFile)));
        assert_eq!(advance(&mut transfer(Call::Read), 0, 900), Some(Err(FaultKind::EndOfFile)));
        assert_eq!(advance(&mut transfer(Call::Write), 0, 900), Some(Err(FaultKind::Device)));
        assert_eq!(advance(&mut transfer(Call::Write), -libc::ENOSPC, 0), Some(Err(FaultKind::NoSpace)));
        let mut cancelled = transfer(Call::Read);
        cancelled.cancelled = true;
        assert_eq!(advance(&mut cancelled, -libc::EINTR, 5000), Some(Err(FaultKind::Cancelled)));
    }
}
