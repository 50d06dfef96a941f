//! Messages on their way out: a queue for each channel, emptied by a task of its own, so that what is decided in one synchronous step
//! leaves in that order.
//!
//! Messages that wait together leave together, as one piece of the channel's stream: what a piece costs, in calls of the system and at the
//! peer, is then paid once. Where messages have a price, each is one of its own, for its time is paid before it leaves.

use crate::channel::Channel;
use crate::message::{self, Message, SIZE_MAX};
use base::time::SECOND_NS;
use driver::{Fault, Work};
use executor::{Executor, WaitQueue};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;

/// The most bytes that wait for the server of a client, whose commits are messages of any length; for a client of a server; for another
/// client. A peer that takes nothing is given up.
pub const TO_SERVER_MAX: usize = 2 * SIZE_MAX;
/// See [`TO_SERVER_MAX`].
pub const TO_CLIENT_MAX: usize = 16 << 20;
/// See [`TO_SERVER_MAX`].
pub const TO_PEER_MAX: usize = 4 << 20;
/// While more bytes than this wait for a client, it is not heard: it would ask for more.
pub const HEARD_MAX: usize = 1 << 20;
/// While the last piece that waits has fewer bytes than this, the next message joins it: about what a connection takes at a time.
const PIECE: usize = 56 << 10;
/// How much memory is kept for the next piece, in bytes.
const KEPT_MAX: usize = 2 * PIECE;
/// A longer piece leaves in parts of this number of bytes: so it is seen that it does.
const PART: usize = 64 << 10;
/// For how long a peer may still take what was put there before the queue was closed, in nanoseconds.
const LINGER_NS: u64 = 5 * SECOND_NS;

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// One message more, of this number of bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// What a node has sent.
#[derive(Default)]
pub struct Traffic {
    /// Messages.
    pub messages: Cell<u64>,
    /// Their bytes.
    pub bytes: Cell<u64>,
    /// The bytes that wait to be sent, now.
    pub waiting: Cell<u64>,
    /// What was sent, by the kind of message.
    pub kinds: RefCell<Kinds>,
}

/// Amounts of messages by their kinds, which are few and in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Kinds(Vec<(&'static str, Amount)>);

impl Kinds {
    /// One message more of this kind, of this number of bytes.
    pub(crate) fn add(&mut self, kind: &'static str, bytes: usize) {
        // A kind has one name, which is found without a look at its letters.
        let place = self.0.iter().position(|(name, _)| std::ptr::eq(*name, kind));
        let place = place.unwrap_or_else(|| match self.0.binary_search_by_key(&kind, |(name, _)| name) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (kind, Amount::default()));
                place
            }
        });
        self.0[place].1.add(bytes);
    }

    /// How many there were of a kind.
    pub fn get(&self, kind: &str) -> Option<Amount> {
        self.iter().find(|(name, _)| *name == kind).map(|(_, amount)| amount)
    }

    /// All kinds of which there were some.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Amount)> {
        self.0.iter().copied()
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Traffic {
    /// Forgets what was sent.
    pub fn restart(&self) {
        self.messages.set(0);
        self.bytes.set(0);
        self.kinds.borrow_mut().clear();
    }

    /// These bytes wait to be sent.
    pub(crate) fn add_waiting(&self, bytes: usize) {
        self.waiting.set(self.waiting.get() + bytes as u64);
    }

    /// They do so no longer.
    pub(crate) fn take_waiting(&self, bytes: usize) {
        self.waiting.set(self.waiting.get() - bytes as u64);
    }
}

/// Whole messages that leave together.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    /// How many there are, and how many pages in them.
    messages: u64,
    images: u64,
}

impl Piece {
    fn steps(&self) -> [(Work, u64); 2] {
        [(Work::NodeMessage, self.messages), (Work::PageImage, self.images)]
    }
}

/// The queue of one channel.
pub struct Outbox {
    pieces: RefCell<VecDeque<Piece>>,
    /// Memory for the next one.
    spare: RefCell<Vec<u8>>,
    waiting: Cell<usize>,
    /// The bytes that the channel has taken.
    taken: Cell<u64>,
    /// The bytes of what will be put here.
    expected: Cell<usize>,
    is_closed: Cell<bool>,
    /// The task that empties the queue has taken something out of it that has not left yet.
    is_sending: Cell<bool>,
    bytes_max: usize,
    bell: WaitQueue,
    /// Wakes those who wait until less waits to be sent.
    room: WaitQueue,
    /// The same, whatever is expected.
    space: WaitQueue,
    end: WaitQueue,
    executor: Executor,
    traffic: Rc<Traffic>,
    size_min: usize,
    /// Where what waits is sent to if that takes no time. The task that empties the queue has it: with its executor it is gone, and the
    /// peer hears that, whatever else keeps the queue.
    at_once: Option<Weak<dyn Channel>>,
}

impl Outbox {
    /// A queue of `bytes_max` bytes whose messages have at least `size_min` bytes and are counted in `traffic`, and the task that
    /// empties it.
    pub fn new(
        executor: &Executor,
        channel: Rc<dyn Channel>,
        traffic: &Rc<Traffic>,
        (size_min, bytes_max): (usize, usize),
    ) -> Rc<Outbox> {
        let outbox = Rc::new(Outbox {
            pieces: RefCell::default(),
            spare: RefCell::default(),
            waiting: Cell::new(0),
            taken: Cell::new(0),
            expected: Cell::new(0),
            is_closed: Cell::new(false),
            is_sending: Cell::new(false),
            bytes_max,
            bell: WaitQueue::new(),
            room: WaitQueue::new(),
            space: WaitQueue::new(),
            end: WaitQueue::new(),
            executor: executor.clone(),
            traffic: Rc::clone(traffic),
            size_min,
            at_once: channel.sends_at_once().then(|| Rc::downgrade(&channel)),
        });
        executor.spawn(empty(Rc::clone(&outbox), channel));
        outbox
    }

    /// Puts a message behind all others. One to a channel that is closed is lost.
    pub fn push(&self, message: &impl Message) {
        if self.is_closed.get() {
            return;
        }
        let length = self.append(message);
        self.waiting.set(self.waiting.get() + length);
        self.traffic.add_waiting(length);
        self.traffic.messages.set(self.traffic.messages.get() + 1);
        self.traffic.bytes.set(self.traffic.bytes.get() + length as u64);
        self.traffic.kinds.borrow_mut().add(message.kind(), length);
        if self.waiting.get() > self.bytes_max {
            return self.discard();
        }
        self.bell.wake_all(&self.executor);
    }

    /// Sends what waits in this step, if the channel takes no time for that, rather than when the task has its turn that empties the
    /// queue: many may come before it, and the peer would have nothing to do meanwhile. Behind what is on its way it waits for that task.
    pub fn flush(&self) {
        if self.is_sending.get() {
            return;
        }
        let Some(channel) = self.at_once.as_ref().and_then(Weak::upgrade) else { return };
        while let Some(piece) = self.pop() {
            // Where messages have prices, sending them takes time.
            piece.steps().into_iter().for_each(|(work, times)| self.executor.charge_times(work, times));
            if channel.send_at_once(piece.bytes).is_err() {
                return self.discard();
            }
        }
    }

    /// Puts a message into the last piece, or into one of its own. Returns how many bytes it has.
    fn append(&self, message: &impl Message) -> usize {
        let mut pieces = self.pieces.borrow_mut();
        let joins = |piece: &Piece| piece.bytes.len() < PIECE && !self.executor.is_priced();
        if !pieces.back().is_some_and(joins) {
            let mut bytes = self.spare.take();
            if !pieces.is_empty() && !self.executor.is_priced() {
                // It will be a full one.
                bytes.reserve(PIECE + (PIECE >> 2));
            }
            pieces.push_back(Piece { bytes, ..Piece::default() });
        }
        let piece = pieces.back_mut().expect("there is one");
        let before = piece.bytes.len();
        message::encode(message, self.size_min, &mut piece.bytes);
        piece.messages += 1;
        piece.images += message.images() as u64;
        piece.bytes.len() - before
    }

    fn pop(&self) -> Option<Piece> {
        let piece = self.pieces.borrow_mut().pop_front()?;
        self.waiting.set(self.waiting.get() - piece.bytes.len());
        self.traffic.take_waiting(piece.bytes.len());
        self.wake_for_room();
        self.space.wake_all(&self.executor);
        Some(piece)
    }

    /// A piece has left.
    fn keep_memory_of(&self, Piece { mut bytes, .. }: Piece) {
        if bytes.capacity() <= KEPT_MAX {
            bytes.clear();
            self.spare.replace(bytes);
        }
    }

    /// Whether much waits to be sent, or will.
    pub fn is_crowded(&self) -> bool {
        self.waiting.get() + self.expected.get() > HEARD_MAX
    }

    /// Whether something waits to be sent, or is being sent.
    pub fn is_waiting(&self) -> bool {
        self.waiting.get() > 0 || self.is_sending.get()
    }

    /// How many bytes the channel has taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    fn wake_for_room(&self) {
        if !self.is_crowded() {
            self.room.wake_all(&self.executor);
        }
    }

    /// A message of this number of bytes will be put here, until what this returns is dropped.
    pub fn expect(self: &Rc<Self>, bytes: usize) -> Expected {
        self.expected.set(self.expected.get() + bytes);
        Expected { outbox: Rc::clone(self), bytes }
    }

    /// Nothing is sent any more, not even what was put here.
    fn discard(&self) {
        self.pieces.take();
        self.traffic.take_waiting(self.waiting.take());
        self.close();
    }

    /// Nothing is sent behind what was put here, and the peer is told so.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.bell.wake_all(&self.executor);
        self.room.wake_all(&self.executor);
        self.space.wake_all(&self.executor);
        self.end.wake_all(&self.executor);
    }

    /// What `heard` gives; `None` once nothing is sent any more, for then nothing is to be heard. `ended` is one [`Outbox::ended`]
    /// for all that is heard.
    pub async fn unless_ended<T>(
        ended: &mut Pin<&mut impl Future<Output = ()>>,
        heard: impl Future<Output = T>,
    ) -> Option<T> {
        let mut heard = pin!(heard);
        poll_fn(|context| match heard.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => ended.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Waits while much waits to be sent, or will.
    pub async fn has_room(&self) {
        while self.is_crowded() && !self.is_closed.get() {
            self.room.wait(&self.executor).await;
        }
    }

    /// Whether a message of this number of bytes does not make the queue too long. One that is alone does not.
    pub fn has_space(&self, bytes: usize) -> bool {
        self.is_closed.get() || self.waiting.get() == 0 || self.waiting.get() + bytes <= self.bytes_max / 2
    }

    /// Waits until that may be so.
    pub async fn await_space(&self) {
        self.space.wait(&self.executor).await;
    }

    /// Waits until nothing is sent any more.
    pub async fn ended(&self) {
        while !self.is_closed.get() {
            self.end.wait(&self.executor).await;
        }
    }

    /// Waits until a queue that was closed should be empty.
    async fn overdue(&self) {
        self.ended().await;
        self.executor.sleep_ns(LINGER_NS).await;
    }

    /// Whether nothing is sent any more: it was closed, or the channel is gone.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

/// Stands for a message that is not made yet.
pub struct Expected {
    outbox: Rc<Outbox>,
    bytes: usize,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.outbox.expected.set(self.outbox.expected.get() - self.bytes);
        self.outbox.wake_for_room();
    }
}

/// Sends what is put into a queue, until that is closed and empty, the channel is gone, or the peer has taken nothing for too long.
async fn empty(outbox: Rc<Outbox>, channel: Rc<dyn Channel>) {
    let mut overdue = pin!(outbox.overdue());
    let _sent = Outbox::unless_ended(&mut overdue, send_all(&outbox, &*channel)).await;
    outbox.discard();
}

async fn send_all(outbox: &Outbox, channel: &dyn Channel) -> Result<(), Fault> {
    loop {
        match outbox.pop() {
            Some(piece) => {
                outbox.is_sending.set(true);
                outbox.executor.pay_steps(&piece.steps()).await;
                // Where messages have prices, each is paid for as a whole.
                let part = if outbox.executor.is_priced() { usize::MAX } else { PART };
                for part in piece.bytes.chunks(part) {
                    channel.send(part).await?;
                    outbox.taken.set(outbox.taken.get() + part.len() as u64);
                }
                outbox.is_sending.set(false);
                outbox.keep_memory_of(piece);
            }
            // The peer ends then, too. If it cannot be told, it learns in other ways.
            None if outbox.is_closed.get() => return channel.shutdown().await,
            None => outbox.bell.wait(&outbox.executor).await,
        }
    }
}

#[cfg(test)]
mod tests;
