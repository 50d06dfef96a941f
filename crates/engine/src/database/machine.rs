use executor::Executor;
use structures::canary::{self, Canary};

/// The executor that a database runs on. It stops when this is dropped: what the driver has under way on the files ends, and only
/// then do the locks of its directories go, even if others still have the executor or the database.
pub struct Machine(pub Executor);

impl Drop for Machine {
    fn drop(&mut self) {
        if !canary::is_planted(Canary::RunningMachine) {
            self.0.stop();
        }
    }
}
