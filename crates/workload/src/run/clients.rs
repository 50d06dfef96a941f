//! Where transactions come from: clients, and arrivals at a rate.

use super::{Length, Shared, Workload};
use base::time::SECOND_NS;
use base::{Instant, Random};
use executor::WholeExecutor;
use std::pin::pin;
use std::rc::Rc;

impl<W: Workload> Shared<W> {
    pub(super) async fn client(self: Rc<Self>, client: u32) {
        let mut random = Random::stream(self.plan.seed, &format!("client {client}"));
        let executor = self.database.executor().whole();
        let mut arrival = executor.now();
        while !self.finished.get() {
            if !self.take_permit(arrival) {
                self.permitted.wait(executor).await;
                arrival = executor.now();
                continue;
            }
            let input = self.workload.draw(&mut random);
            // The next request comes when the last one is answered.
            arrival = self.one(arrival, input).await;
            self.end_one();
            // A client that never waits would keep all others, and the run's end, from their turn.
            if self.ended.get().is_some() || self.completed.get().is_multiple_of(64) {
                executor.yield_now().await;
                arrival = executor.now();
            }
        }
    }

    pub(super) async fn arrivals(self: Rc<Self>, rate_per_s: f64) {
        let executor = self.database.executor().whole().clone();
        let mut times = Random::stream(self.plan.seed, "arrivals");
        let mut inputs = Random::stream(self.plan.seed, "inputs");
        let mut next = executor.now();
        let mut left = self.arrivals_max();
        while !self.finished.get() && left > 0 {
            left -= 1;
            next = next.plus_ns(times.exponential(SECOND_NS as f64 / rate_per_s) as u64);
            executor.sleep_until(next).await;
            let input = self.workload.draw(&mut inputs);
            self.spawn(async move |shared| {
                shared.one(next, input).await;
            });
            if self.running.get() == self.unfinished_max.get().saturating_add(1) {
                self.part_ended.wake_all(&executor);
            }
        }
        self.unfinished_at_last.set(self.running.get());
    }

    /// How many transactions arrive. A run without a warm-up begins and ends with none under way; where some are under way when
    /// the measured part begins, others are when it ends.
    fn arrivals_max(&self) -> u64 {
        match (self.plan.warm_up, self.plan.measure) {
            (Length::Transactions(before), Length::Transactions(measured))
                if before == 0 || self.workload.is_counted() =>
            {
                before.saturating_add(measured)
            }
            _ => u64::MAX,
        }
    }

    /// A transaction that had a permit has ended.
    pub(super) fn end_one(&self) {
        self.active.set(self.active.get() - 1);
        if self.active.get() == 0 && self.permits.get() == 0 {
            self.part_ended.wake_all(self.database.executor().whole());
        }
    }

    /// Runs one transaction and counts it. Returns when it ended.
    async fn one(&self, arrival: Instant, input: W::Input) -> Instant {
        let kind = self.workload.type_of(&input);
        self.workload.prefetch(&self.database.prefetcher(engine::PrefetchDistance::Far), &input);
        let result = if self.calls.is_empty() {
            // Awaited where it is made: a future of this size is copied otherwise.
            pin!(self.database.transaction(async |tx| self.workload.run(tx, &input).await)).await
        } else {
            let mut parameters = Vec::new();
            let name = &self.calls[self.workload.request(&input, &mut parameters)];
            self.database.call(name, &parameters).await.map(drop)
        };
        let now = self.database.executor().now();
        match result {
            Err(error) => self.fail(error),
            Ok(()) => self.count(kind, arrival, now),
        }
        now
    }
}
