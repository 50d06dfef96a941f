//! Single-threaded asynchronous execution above one driver: tasks, timers, operations in flight, connections to other machines,
//! the price of CPU steps. A [`Cluster`] runs several executors on simulated machines that share a network and a clock.
//!
//! There is one copy of this for the real and the virtual driver. Leaf futures need no wakers: they register the current
//! task's id, and waking only enqueues it. They tolerate being polled without cause. Other futures get wakers that may be
//! cloned and used anywhere (`wakers.rs`).

mod awaiting;
mod bounded;
mod caller;
mod compute;
mod connection;
mod executor;
mod join;
mod mailbox;
mod operations;
mod panics;
mod pricing;
mod stopped;
mod tasks;
mod timers;
mod turn;
mod unanswered;
mod user;
mod wait;
mod wakers;

pub use bounded::{BoundedQueue, Push};
pub use caller::Caller;
pub use connection::{CONNECTION_BUFFER, Connection, Listener};
pub use executor::cluster::{Cluster, Stop};
pub use executor::groups::{Group, Members};
pub use executor::{Executor, Order, Step};
pub use join::JoinHandle;
pub use mailbox::{Mailbox, Sender, mailbox};
pub use operations::Perform;
pub use panics::{CatchPanic, Panic, catch_panic, panic_message};
pub use tasks::TaskId;
pub use turn::{Holding, Turn};
pub use unanswered::Unanswered;
pub use user::{UserExecutor, WholeExecutor};
pub use wait::{Wait, WaitQueue};
pub use wakers::Relay;
