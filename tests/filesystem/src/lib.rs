//! The real driver under torture: a file system in user space whose files lie on the virtual driver's media, with the same
//! model of faults. The engine runs on it as a process of its own, which is killed or loses its power at a random request of
//! its driver; then it opens its database again, and everything is held against what it had said.
//!
//! Plans are drawn from a seed. What the process does meanwhile depends on this machine, so a seed that fails may pass the next
//! time.

mod description;
mod directory;
mod front;
mod judgement;
mod mounted;
mod plan;
mod process;
mod run;
mod service;
mod volume;

pub use description::Backend;
pub use mounted::Mounted;
pub use plan::{Effect, End, Plan, Rule, Step};
pub use process::{Orders, run as process};
pub use run::{Failure, Options, Summary, run};
pub use service::Injected;
pub use volume::Volume;
