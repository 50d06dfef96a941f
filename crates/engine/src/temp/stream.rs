//! The way back from clusters to rows.

use super::cluster::{self, HEADER};
use super::row::{self, HEAD_MAX, Row, Shape};
use driver::Frame;
use std::collections::VecDeque;
use std::ops::Range;

/// What a step to the next row came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// There is one.
    Row,
    /// The next cluster is not here yet.
    Lacking,
    /// There is none.
    End,
}

/// A cluster that is not what was written.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// Which of its run.
    pub cluster: u32,
    pub detail: String,
}

/// Whole rows out of a run's clusters, which are supplied in their order.
pub(super) struct Stream {
    run: u64,
    /// How many clusters the run has; unknown while it is being made.
    clusters: Option<u32>,
    /// How many were begun.
    begun: u32,
    sealed: bool,
    supplied: VecDeque<Frame>,
    frame: Option<Frame>,
    at: usize,
    end: usize,
    /// A row that lies in several clusters, as far as it is here.
    partial: Vec<u8>,
    is_partial: bool,
    /// The present row, in `partial` or in the present cluster.
    row: (Range<usize>, Shape),
    spent: Vec<Frame>,
}

impl Stream {
    /// Of a run of `clusters` clusters, which are verified.
    pub fn new(run: u64, clusters: u32) -> Stream {
        Stream { clusters: Some(clusters), sealed: true, run, ..Stream::unsealed() }
    }

    /// Of clusters that never left memory; it ends with [`Stream::close`].
    pub fn unsealed() -> Stream {
        Stream {
            run: 0,
            clusters: None,
            begun: 0,
            sealed: false,
            supplied: VecDeque::new(),
            frame: None,
            at: 0,
            end: 0,
            partial: Vec::new(),
            is_partial: false,
            row: (0..0, Shape::default()),
            spent: Vec::new(),
        }
    }

    /// Reads the next cluster.
    pub fn supply(&mut self, frame: Frame) {
        self.supplied.push_back(frame);
    }

    /// No more clusters come.
    pub fn close(&mut self) {
        self.clusters = Some(self.begun + self.supplied.len() as u32);
    }

    /// Frames whose rows were all read.
    pub fn spent(&mut self) -> &mut Vec<Frame> {
        &mut self.spent
    }

    /// The row that the last step went to, as it is encoded.
    #[inline]
    pub fn encoded(&self) -> &[u8] {
        let range = self.row.0.clone();
        match &self.frame {
            _ if self.is_partial => &self.partial[range],
            Some(frame) => &frame[range],
            None => &[],
        }
    }

    /// The row that the last step went to.
    #[inline]
    pub fn row(&self) -> Row<'_> {
        row::decode(self.encoded(), self.row.1)
    }

    /// Goes to the next row. While the next cluster is lacking the present row is gone.
    ///
    /// # Errors
    /// A cluster is damaged.
    #[inline]
    pub fn advance(&mut self) -> Result<Advance, Damage> {
        if self.is_partial && self.row.0.end > 0 {
            // The present row was the one in `partial`.
            self.partial.clear();
            (self.is_partial, self.row) = (false, (0..0, Shape::default()));
        }
        if !self.is_partial
            && let Some(frame) = &self.frame
        {
            let rest = &frame[self.at..self.end];
            if let Some(shape) = Shape::read(rest)
                && shape.total() <= rest.len()
            {
                self.row = (self.at..self.at + shape.total(), shape);
                self.at += shape.total();
                return Ok(Advance::Row);
            }
        }
        self.advance_over_clusters()
    }

    /// The next row does not lie within the present cluster, or there is none.
    #[cold]
    fn advance_over_clusters(&mut self) -> Result<Advance, Damage> {
        self.row = (0..0, Shape::default());
        loop {
            if self.frame.is_none() && !self.begin()? {
                return match self.clusters {
                    Some(clusters) if clusters == self.begun && !self.is_partial => Ok(Advance::End),
                    Some(clusters) if clusters == self.begun => Err(self.damage("its last row is not whole")),
                    _ => Ok(Advance::Lacking),
                };
            }
            let Some(frame) = &self.frame else { continue };
            let rest = &frame[self.at..self.end];
            let shape = Shape::read(if self.partial.is_empty() { rest } else { &self.partial });
            let wanted = match shape {
                Some(shape) if self.partial.is_empty() && shape.total() <= rest.len() => {
                    self.row = (self.at..self.at + shape.total(), shape);
                    self.at += shape.total();
                    self.is_partial = false;
                    return Ok(Advance::Row);
                }
                Some(shape) => shape.total() - self.partial.len(),
                None if self.partial.len() >= HEAD_MAX => return Err(self.damage("a row has no head")),
                // One byte after the other, until the head is whole.
                None => 1,
            };
            let taken = wanted.min(rest.len());
            self.partial.extend_from_slice(&rest[..taken]);
            self.is_partial = !self.partial.is_empty();
            self.at += taken;
            if self.at == self.end && !self.is_whole() {
                self.spent.extend(self.frame.take());
            }
            if self.is_whole() {
                let shape = Shape::read(&self.partial).expect("read above");
                self.row = (0..shape.total(), shape);
                return Ok(Advance::Row);
            }
        }
    }

    fn is_whole(&self) -> bool {
        Shape::read(&self.partial).is_some_and(|shape| shape.total() == self.partial.len())
    }

    /// Begins the next cluster, if it is here.
    fn begin(&mut self) -> Result<bool, Damage> {
        let Some(frame) = self.supplied.pop_front() else { return Ok(false) };
        if self.sealed {
            let verdict = cluster::verify(&frame, self.run, self.begun);
            verdict.map_err(|detail| Damage { cluster: self.begun, detail })?;
        }
        (self.at, self.end) = (HEADER, HEADER + cluster::used(&frame));
        self.frame = Some(frame);
        self.begun += 1;
        Ok(true)
    }

    fn damage(&self, detail: &str) -> Damage {
        Damage { cluster: self.begun.saturating_sub(1), detail: detail.to_owned() }
    }
}
