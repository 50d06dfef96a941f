//! The cleaner: writes cold dirty pages before they must leave, so that a miss finds a clean victim.

use super::Buffer;
use executor::Executor;
use std::rc::Weak;

/// Works while the buffer lives; woken by misses.
pub async fn run(buffer: Weak<Buffer>, executor: Executor) {
    while let Some(buffer) = buffer.upgrade() {
        let within = (buffer.settings().frames / 8).max(16);
        let mut cold = buffer.pool().borrow().coldest_dirty(within, buffer.batch_size());
        if let Some(durable) = buffer.log_to_spare() {
            cold.retain(|frame| buffer.pool().borrow().is_logged(*frame, durable));
        }
        let written = !cold.is_empty() && buffer.write_back(cold).await.is_ok();
        if !written {
            // Nothing to do, or a write failed and will fail again: the next miss wakes the cleaner.
            buffer.clean.wait(&executor).await;
        }
    }
}
