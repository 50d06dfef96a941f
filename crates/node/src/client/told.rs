//! What a client's owner is told to do.

use super::Fallen;
use crate::message::{Copy, LeavingFate, ToServer, Transaction};
use base::PageId;

/// What is to be done when a page has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The copy that had to make room, and what becomes of it. Its bytes are kept no longer, unless others are offered it.
    pub leaving: Option<(Copy, LeavingFate)>,
    /// A copy that others were offered for too long: its bytes are not needed.
    pub forgets: Option<Copy>,
    /// The page was called back meanwhile and no transaction uses it: see [`Client::give_up`](super::Client::give_up).
    pub is_called: bool,
}

/// What is to be done when a page cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Whether it was waited for. If not, this is late, and nothing is to be done.
    pub was_waited_for: bool,
    /// Whether no transaction had asked for it: those that wait for it by now have to.
    pub was_speculative: bool,
    /// A copy whose bytes were kept and are not needed.
    pub forgets: Option<Copy>,
    /// What to say.
    pub answer: Option<ToServer>,
}

/// What a transaction has to do to write a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteLock {
    /// Nothing: it may.
    Held,
    /// Say this and wait for the answer.
    Ask(ToServer),
    /// Wait: it has asked before, or another transaction of this client has asked or writes.
    Wait,
}

/// What came of asking for a lock among the transactions of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLock {
    /// The transaction has it.
    Held,
    /// It has to wait; see [`Client::lock_of`](super::Client::lock_of).
    Wait,
    /// To end a deadlock this transaction has to be rolled back. If it is another one, the lock is waited for.
    Victim(Transaction),
}

/// What is to be done because of what was done here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Copies that were given up in use: this comes first.
    pub falls: Vec<Fallen>,
    /// What to say, in this order.
    pub messages: Vec<ToServer>,
    /// The pages to be taken out of the memory before that.
    pub discards: Vec<PageId>,
    /// Copies that were asked for and that no transaction waits for any more, and those whose bytes were kept until they would come.
    pub unwanted: Vec<(Copy, Option<Copy>)>,
    /// Transactions have got locks that they have waited for.
    pub wakes: bool,
}
