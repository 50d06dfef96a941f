//! Runs: rows written one after the other, in clusters, on extents of temporary space.

use super::frames::Frames;
use super::space::{Extent, Space};
use super::stream::{Damage, Stream};
use crate::{Error, Result};
use driver::{Access, Frame};
use std::rc::Rc;

/// A finished run. Clones are the same run; dropping the last gives its extents back.
#[derive(Clone)]
pub(super) struct Run {
    pub space: Space,
    pub number: u64,
    /// Its extents by their numbers; those whose rows were all read were given back.
    extents: Vec<(u32, Option<Rc<Extent>>)>,
    /// How many clusters it has.
    pub clusters: u32,
    /// Bytes of its longest row.
    pub longest: usize,
    /// How many merges its rows have been through.
    pub level: u32,
}

impl Run {
    /// Its rows, as soon as its clusters are supplied.
    pub fn stream(&self) -> Stream {
        Stream::new(self.number, self.clusters)
    }

    /// Starts to read a cluster; see [`Space::read`].
    pub fn read(&self, cluster: u32, frames: (&Frames, Frame), access: Access, arrived: impl FnOnce(Frame) + 'static) {
        self.space.read(self.place(cluster), frames, access, arrived);
    }

    fn place(&self, cluster: u32) -> (Rc<Extent>, u32) {
        let clusters = self.space.extent_clusters();
        let (_, extent) = &self.extents[(cluster / clusters) as usize];
        (Rc::clone(extent.as_ref().expect("what was given back is not read again")), cluster % clusters)
    }

    /// The clusters up to this one are not read again: whole extents of them are given back.
    pub fn release(&mut self, through: u32) {
        let clusters = self.space.extent_clusters();
        let ended = if through + 1 == self.clusters { self.extents.len() } else { ((through + 1) / clusters) as usize };
        // Only the one that ends here may still be there.
        if let Some((_, last)) = self.extents[..ended].last_mut() {
            *last = None;
        }
    }

    /// The error that a damaged cluster of this run makes.
    pub fn damaged(&self, damage: Damage) -> Error {
        let (extent, _) = &self.extents[(damage.cluster / self.space.extent_clusters()) as usize];
        self.space.damaged(*extent, damage)
    }
}

/// A run that is being written.
pub(super) struct RunWriter {
    run: Run,
    frames: Frames,
}

impl RunWriter {
    /// Of a run whose clusters are written from these frames.
    pub fn new(space: &Space, frames: &Frames, level: u32) -> RunWriter {
        let number = space.run_number();
        let run = Run { space: space.clone(), number, extents: Vec::new(), clusters: 0, longest: 0, level };
        RunWriter { run, frames: frames.clone() }
    }

    /// The run's number.
    pub fn number(&self) -> u64 {
        self.run.number
    }

    /// Starts to write the next cluster. The frame comes back to the frames of this writer.
    ///
    /// # Errors
    /// [`Error::TempFull`], or the driver's.
    pub async fn write(&mut self, frame: Frame) -> Result<()> {
        let index = self.run.clusters % self.run.space.extent_clusters();
        if index == 0 {
            let extent = self.run.space.extent().await?;
            self.run.extents.push((extent.number(), Some(extent)));
        }
        let access = self.run.space.pay().await;
        let extent = self.run.extents.last().and_then(|(_, extent)| extent.as_ref()).expect("taken above");
        self.run.space.write(Rc::clone(extent), index, &self.frames, frame, access);
        self.run.clusters += 1;
        self.frames.check()
    }

    /// Notes that a row of `bytes` bytes is among those written.
    pub fn note_row(&mut self, bytes: usize) {
        self.run.longest = self.run.longest.max(bytes);
    }

    /// The run. It can be read when [`Frames::landed`] says so.
    pub fn finish(self) -> Run {
        self.run
    }
}
