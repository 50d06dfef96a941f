//! Reads that survive unreadable sectors: where there are other copies, or nothing may be needed, the rest is worth having.

use crate::Result;
use driver::{Access, Fault, FaultKind, FileId, Frame, Op};
use executor::Executor;
use structures::canary::{self, Canary};

/// What could be read of a region of a file.
pub struct Salvaged {
    /// Holds the bytes at its front; zeros stand for what could not be read.
    pub frame: Frame,
    /// The pieces that could not be read, by number, in ascending order.
    pub unreadable: Vec<usize>,
    /// Why the last of them could not be.
    pub fault: Option<Fault>,
}

/// How often a piece is read before it counts as unreadable: a copy that is given up may be the last one.
const ATTEMPTS: u32 = 3;

/// Reads `length` bytes at `offset` into the front of `frame`: at once if that is possible, else piece by piece.
///
/// # Errors
/// The driver's, but for [`FaultKind::Device`].
pub async fn read(
    executor: &Executor,
    file: FileId,
    (offset, length): (u64, usize),
    piece_size: usize,
    frame: Frame,
) -> Result<Salvaged> {
    let (mut frame, fault) = attempt(executor, file, (offset, length), frame).await?;
    if fault.is_none() {
        return Ok(Salvaged { frame, unreadable: Vec::new(), fault });
    }
    let (mut unreadable, mut last) = (Vec::new(), None);
    let mut piece = executor.frame(piece_size)?;
    for (number, start) in (0..length).step_by(piece_size).enumerate() {
        let size = piece_size.min(length - start);
        let mut fault = None;
        for _ in 0..ATTEMPTS {
            (piece, fault) = attempt(executor, file, (offset + start as u64, size), piece).await?;
            if fault.is_none() {
                break;
            }
        }
        let target = &mut frame[start..start + size];
        match fault {
            None => target.copy_from_slice(&piece[..size]),
            fault => {
                target.fill(0);
                unreadable.push(number);
                last = fault;
            }
        }
    }
    Ok(Salvaged { frame, unreadable, fault: last })
}

/// One read; why the device could not.
async fn attempt(
    executor: &Executor,
    file: FileId,
    (offset, length): (u64, usize),
    buffer: Frame,
) -> Result<(Frame, Option<Fault>)> {
    let op = Op::Read { file, offset, length: length as u32, buffer, access: Access::Asynchronous };
    let completion = executor.perform(op).await;
    let fault = match completion.result {
        Ok(_) => None,
        Err(fault) if fault.kind == FaultKind::Device && !canary::is_planted(Canary::NoSalvage) => Some(fault),
        Err(fault) => return Err(fault.into()),
    };
    Ok((completion.buffer.expect("a read gives its buffer back"), fault))
}
