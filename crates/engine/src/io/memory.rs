//! Memory that is brought into being beside the engine's thread.

use crate::Result;
use driver::{Fault, Frame};
use executor::{Executor, JoinHandle};

/// What is written once to bring a page of memory into being.
const PAGE_SIZE: usize = 4096;
/// About what that costs on described hardware, in instructions.
const TOUCH_INSTRUCTIONS: u64 = 500;

/// Asks for frames, and has every page of them brought into being beside the engine's thread.
pub fn touched_frames(executor: &Executor, count: usize, size: usize) -> Result<JoinHandle<Result<Vec<Frame>, Fault>>> {
    let frames = executor.untouched_frames(count, size)?;
    let instructions = (count * size / PAGE_SIZE) as u64 * TOUCH_INSTRUCTIONS;
    Ok(executor.begin_compute(instructions, move || touched(frames)))
}

/// Writes to every page of memory of these frames.
pub fn touched(mut frames: Vec<Frame>) -> Vec<Frame> {
    frames.iter_mut().for_each(|frame| frame.iter_mut().step_by(PAGE_SIZE).for_each(|byte| *byte = 0));
    frames
}
