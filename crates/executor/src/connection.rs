//! Connections between machines, as tasks use them.
//!
//! A connection carries two streams of bytes; where a message ends is a matter of the protocol above. For each direction it has
//! buffers of [`CONNECTION_BUFFER`] bytes: to send, one that the driver has and one that fills meanwhile; to receive, one. So what a
//! peer that does not read can cost is bounded: those who send wait for room. Nothing is asked of the driver before a task wants it, so
//! a task that does not receive slows its peer down.

use crate::{Executor, Turn, WaitQueue};
use driver::{Completion, Fault, FaultKind, Frame, Op, Output, SocketId};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// The size of each of a connection's buffers, in bytes.
pub const CONNECTION_BUFFER: usize = 64 << 10;

/// Accepts connections at an address. Closed when it is dropped.
pub struct Listener {
    executor: Executor,
    socket: SocketId,
    address: SocketAddr,
}

/// One end of a connection. When it is dropped, it is closed at once: what the driver has not taken yet is lost, unlike with
/// [`Connection::close`].
///
/// ```
/// # use entresol_executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// let answer = executor.run(async {
///     let listener = executor.listen("127.0.0.1:0".parse().expect("an address")).await?;
///     let client = executor.connect(listener.address()).await?;
///     let server = listener.accept().await?;
///     client.send(b"how are you?").await?;
///     client.shutdown().await?;
///     let mut question = Vec::new();
///     while server.receive(&mut question).await? > 0 {}
///     assert_eq!(question, b"how are you?");
///     server.send(b"well").await?;
///     server.close().await?;
///     let mut answer = Vec::new();
///     while client.receive(&mut answer).await? > 0 {}
///     Ok::<_, driver::Fault>(answer)
/// });
/// assert_eq!(answer.expect("the machine goes on")?, b"well");
/// # Ok::<(), driver::Fault>(())
/// ```
pub struct Connection(Rc<Stream>);

struct Stream {
    executor: Executor,
    socket: SocketId,
    peer: SocketAddr,
    outgoing: RefCell<Outgoing>,
    incoming: RefCell<Incoming>,
    /// Keeps messages of different tasks apart.
    sending: Turn,
    /// Tasks waiting for room to send, or for everything to be sent.
    room: WaitQueue,
    /// Tasks waiting for bytes.
    arrivals: WaitQueue,
}

#[derive(Default)]
struct Outgoing {
    /// Fills while the driver has the other buffer.
    filling: Option<Frame>,
    filled: usize,
    /// A buffer without use at present.
    spare: Option<Frame>,
    is_flying: bool,
    /// Why nothing can be sent any more.
    fault: Option<Fault>,
}

#[derive(Default)]
struct Incoming {
    /// Absent before the first use, and while the driver has it.
    buffer: Option<Frame>,
    /// What of it was received and not yet given to a task.
    start: usize,
    end: usize,
    is_flying: bool,
    /// How receiving has ended, if it has.
    ended: Option<Result<(), Fault>>,
}

impl Executor {
    /// Listens for connections at an address; port 0 lets the driver choose one.
    ///
    /// # Errors
    /// The driver's [`Fault`], such as [`FaultKind::AddressInUse`].
    pub async fn listen(&self, address: SocketAddr) -> Result<Listener, Fault> {
        match self.perform(Op::Listen { address }).await.result? {
            Output::Listening { listener, address } => {
                Ok(Listener { executor: self.clone(), socket: listener, address })
            }
            other => unreachable!("listening answers with the listener, not {other:?}"),
        }
    }

    /// Connects to a listener. How long that may take is the caller's affair: see [`Executor::within`].
    ///
    /// # Errors
    /// The driver's [`Fault`], such as [`FaultKind::Refused`].
    pub async fn connect(&self, address: SocketAddr) -> Result<Connection, Fault> {
        self.connected(Op::Connect { address }).await
    }

    async fn connected(&self, op: Op) -> Result<Connection, Fault> {
        match self.perform(op).await.result? {
            Output::Connected { connection, peer } => Ok(Connection(Rc::new(Stream {
                executor: self.clone(),
                socket: connection,
                peer,
                outgoing: RefCell::default(),
                incoming: RefCell::default(),
                sending: Turn::new(),
                room: WaitQueue::new(),
                arrivals: WaitQueue::new(),
            }))),
            other => unreachable!("connecting answers with the connection, not {other:?}"),
        }
    }

    /// Closes the socket, or lets the file go, that an operation has opened for a task that is gone.
    pub(crate) fn close_unwanted(&self, completion: Completion) {
        let socket = match completion.result {
            Ok(Output::Connected { connection, .. }) => connection,
            Ok(Output::Listening { listener, .. }) => listener,
            Ok(Output::Opened { file, .. }) => return self.forget(file),
            _ => return,
        };
        self.submit(Op::Close { socket }, |_| {});
    }
}

impl Listener {
    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection. One task may wait at a time.
    ///
    /// # Errors
    /// The driver's [`Fault`]: [`FaultKind::TooManyFiles`] if no more sockets can be open, and then the connection is closed.
    pub async fn accept(&self) -> Result<Connection, Fault> {
        self.executor.connected(Op::Accept { listener: self.socket }).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.executor.submit(Op::Close { socket: self.socket }, |_| {});
    }
}

impl Connection {
    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Sends a message: pays for it, and puts its bytes behind all that was sent before. Ready when the last of them stands in
    /// the connection's buffer; whether they arrive is not known. Messages of several tasks do not mix. A message that is
    /// abandoned half way ends the sending.
    ///
    /// # Errors
    /// The [`Fault`] that has ended the sending, now or before.
    pub async fn send(&self, message: &[u8]) -> Result<(), Fault> {
        let stream = &self.0;
        stream.executor.pay_message(message.len()).await;
        let _mine = stream.sending.take(&stream.executor).await;
        let mut course = Course { stream, rest: message.len(), is_begun: false };
        loop {
            let staged = stream.stage(&message[message.len() - course.rest..])?;
            course.is_begun |= staged > 0;
            course.rest -= staged;
            if course.rest == 0 {
                return Ok(());
            }
            stream.room.wait(&stream.executor).await;
        }
    }

    /// Waits until the network has taken everything that was sent.
    ///
    /// # Errors
    /// The [`Fault`] that has ended the sending.
    pub async fn flush(&self) -> Result<(), Fault> {
        let stream = &self.0;
        loop {
            {
                let outgoing = stream.outgoing.borrow();
                if let Some(fault) = &outgoing.fault {
                    return Err(fault.clone());
                }
                if !outgoing.is_flying && outgoing.filled == 0 {
                    return Ok(());
                }
            }
            stream.room.wait(&stream.executor).await;
        }
    }

    /// Ends the sending behind everything that was sent: the peer, when it has received that, is told that nothing more comes.
    ///
    /// # Errors
    /// The [`Fault`] that has ended the sending before.
    pub async fn shutdown(&self) -> Result<(), Fault> {
        let stream = &self.0;
        let _mine = stream.sending.take(&stream.executor).await;
        self.flush().await?;
        let ended = Fault::new(FaultKind::Closed, format!("sending to {} has been shut down", stream.peer));
        stream.outgoing.borrow_mut().fault = Some(ended);
        stream.executor.perform(Op::Shutdown { connection: stream.socket }).await.result.map(drop)
    }

    /// Receives what has come, and waits for that if nothing has: appends it to `into` and returns how many bytes it is; none
    /// when the peer has ended its sending. Bytes that a task has not taken are not lost if it is abandoned.
    ///
    /// # Errors
    /// The [`Fault`] that has ended the receiving, now or before.
    pub async fn receive(&self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        let stream = &self.0;
        loop {
            if let Some(received) = stream.take(into) {
                return received;
            }
            stream.start_receive();
            stream.arrivals.wait(&stream.executor).await;
        }
    }

    /// Waits until the network has taken everything that was sent, and closes the connection.
    ///
    /// # Errors
    /// The [`Fault`] that kept something from being sent. The connection is closed all the same.
    pub async fn close(self) -> Result<(), Fault> {
        let flushed = match self.flush().await {
            Err(fault) if fault.kind == FaultKind::Closed => Ok(()),
            flushed => flushed,
        };
        let stream = &self.0;
        stream.executor.perform(Op::Close { socket: stream.socket }).await;
        flushed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.executor.submit(Op::Close { socket: self.0.socket }, |_| {});
    }
}

/// A message on its way into the buffer. Abandoned half way it leaves the peer without an end to it, so nothing may follow.
struct Course<'a> {
    stream: &'a Stream,
    rest: usize,
    is_begun: bool,
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        if self.is_begun && self.rest > 0 {
            let fault =
                Fault::new(FaultKind::Closed, format!("a message to {} was abandoned half way", self.stream.peer));
            self.stream.outgoing.borrow_mut().fault.get_or_insert(fault);
        }
    }
}

fn buffer() -> Frame {
    Frame::allocate(1, CONNECTION_BUFFER).pop().expect("one frame was asked for")
}

impl Stream {
    /// Puts the front of `bytes` into the buffer, as far as there is room, and returns how many that were.
    fn stage(self: &Rc<Self>, bytes: &[u8]) -> Result<usize, Fault> {
        let mut outgoing = self.outgoing.borrow_mut();
        let Outgoing { filling, filled, spare, fault, .. } = &mut *outgoing;
        if let Some(fault) = fault {
            return Err(fault.clone());
        }
        let filling = filling.get_or_insert_with(|| spare.take().unwrap_or_else(buffer));
        let staged = bytes.len().min(CONNECTION_BUFFER - *filled);
        filling[*filled..*filled + staged].copy_from_slice(&bytes[..staged]);
        *filled += staged;
        drop(outgoing);
        self.start_send();
        Ok(staged)
    }

    /// Gives the driver what has been staged, unless it has something already.
    fn start_send(self: &Rc<Self>) {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.is_flying || outgoing.filled == 0 {
            return;
        }
        let buffer = outgoing.filling.take().expect("what is filled is there");
        let length = std::mem::take(&mut outgoing.filled) as u32;
        outgoing.is_flying = true;
        drop(outgoing);
        let stream = Rc::clone(self);
        let send = Op::Send { connection: self.socket, length, buffer };
        self.executor.submit(send, move |completion| stream.end_send(completion));
    }

    fn end_send(self: Rc<Self>, completion: Completion) {
        {
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.is_flying = false;
            outgoing.spare = completion.buffer;
            if let Err(fault) = completion.result {
                outgoing.fault = Some(fault);
                outgoing.filled = 0;
            }
        }
        self.start_send();
        self.room.wake_all(&self.executor);
    }

    /// Gives a task what was received; `None` if it has to wait.
    fn take(&self, into: &mut Vec<u8>) -> Option<Result<usize, Fault>> {
        let mut incoming = self.incoming.borrow_mut();
        let Incoming { buffer, start, end, ended, .. } = &mut *incoming;
        if start < end {
            let received = &buffer.as_ref().expect("what was received is there")[*start..*end];
            into.extend_from_slice(received);
            *start = *end;
            return Some(Ok(received.len()));
        }
        ended.clone().map(|ended| ended.map(|()| 0))
    }

    fn start_receive(self: &Rc<Self>) {
        let mut incoming = self.incoming.borrow_mut();
        if std::mem::replace(&mut incoming.is_flying, true) {
            return;
        }
        let buffer = incoming.buffer.take().unwrap_or_else(buffer);
        drop(incoming);
        let stream = Rc::clone(self);
        let receive = Op::Receive { connection: self.socket, length: CONNECTION_BUFFER as u32, buffer };
        self.executor.submit(receive, move |completion| stream.end_receive(completion));
    }

    fn end_receive(self: Rc<Self>, completion: Completion) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.is_flying = false;
        incoming.buffer = completion.buffer;
        match completion.result {
            Ok(Output::Received { length: 0 }) => incoming.ended = Some(Ok(())),
            Ok(Output::Received { length }) => (incoming.start, incoming.end) = (0, length as usize),
            Ok(other) => unreachable!("receiving answers with a number of bytes, not {other:?}"),
            Err(fault) => incoming.ended = Some(Err(fault)),
        }
        drop(incoming);
        self.arrivals.wake_all(&self.executor);
    }
}

#[cfg(test)]
mod tests;
