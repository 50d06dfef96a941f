//! What the engine's steps cost on a described CPU: charges, the debts of tasks, and how they are paid.

use super::{Executor, Step};
use crate::executor::groups::Membership;
use driver::{Class, Op, Work};

/// How many bytes one [`Work::NetworkBytes`] is for.
const MESSAGE_PIECE: usize = 256;
/// And one [`Work::ValueCopy`], a power of two.
const VALUE_PIECE: usize = 256;

impl Executor {
    /// Marks a step of the engine. On described hardware its price joins the current task's debt.
    #[inline]
    pub fn charge(&self, work: Work) {
        self.charge_times(work, 1);
    }

    /// Marks `times` steps of one kind that the engine made together. They are recorded as one.
    #[inline]
    pub fn charge_times(&self, work: Work, times: u64) {
        if self.0.recording.get() {
            self.record(Step::Work(work));
        }
        let price = self.price(work, times);
        self.0.debt.set(self.0.debt.get() + price);
    }

    /// Marks that a value of this many bytes was copied or shown. On a real machine this is a count and nothing else.
    #[inline]
    pub fn charge_value(&self, bytes: usize) {
        let pieces = bytes.div_ceil(VALUE_PIECE) as u64;
        if self.0.priced | self.0.recording.get() {
            return self.charge_times(Work::ValueCopy, pieces);
        }
        let count = &self.0.work_counts[Work::ValueCopy as usize];
        count.set(count.get() + pieces);
    }

    /// Adds a step of about `mean` instructions to the current task's debt: work that a workload describes itself, beside
    /// what the hardware's description prices. Distributed as the hardware's prices are; nothing on a real machine.
    pub fn charge_instructions(&self, mean: u64) {
        let instructions = self.0.pricing.borrow_mut().draw(mean);
        self.0.debt.set(self.0.debt.get() + instructions);
    }

    /// Counts steps that a computation beside the engine's thread will make, and returns their cost in instructions: nothing on
    /// a real machine. No task is charged for them, because the computation's operation carries its price.
    #[inline]
    pub fn price(&self, work: Work, times: u64) -> u64 {
        let count = &self.0.work_counts[work as usize];
        count.set(count.get() + times);
        if self.0.priced { self.0.pricing.borrow_mut().price(work, times) } else { 0 }
    }

    /// Pays for one message of this many bytes to or from another machine, at this end: what it costs whatever its length, and
    /// what its bytes cost. This is system work, which goes before all transactions (Franklin 1992, section 3.2). Ready at once
    /// on a real machine. [`Connection::send`](crate::Connection::send) pays for what it sends; who takes a whole message out of
    /// what was received pays for that.
    pub async fn pay_message(&self, bytes: usize) {
        let pieces = bytes.div_ceil(MESSAGE_PIECE) as u64;
        if self.0.recording.get() {
            self.record(Step::Work(Work::NetworkMessage));
            self.record(Step::Work(Work::NetworkBytes));
        }
        let instructions = self.price(Work::NetworkMessage, 1) + self.price(Work::NetworkBytes, pieces);
        if instructions > 0 && !self.compute_alone(instructions) {
            self.perform(Op::Cpu { instructions, class: Class::System }).await;
        }
    }

    /// Pays for these steps at once, whatever the current task owes. Ready at once on a real machine, and where they cost nothing.
    pub async fn pay_steps(&self, steps: &[(Work, u64)]) {
        let mut instructions = 0;
        for (work, times) in steps.iter().copied().filter(|(_, times)| *times > 0) {
            if self.0.recording.get() {
                self.record(Step::Work(work));
            }
            instructions += self.price(work, times);
        }
        if instructions > 0 && !self.compute_alone(instructions) {
            self.perform(Op::Cpu { instructions, class: Class::User }).await;
        }
    }

    /// Whether steps have prices here, so that what is paid for may take time. Never on a real machine.
    pub fn is_priced(&self) -> bool {
        self.0.priced
    }

    /// Takes the current task's debt without paying it: a synchronous access pays it together with the device's service.
    pub fn take_debt(&self) -> u64 {
        self.0.debt.take()
    }

    /// Whether the current task has a debt to pay. Never on a real machine.
    #[inline]
    pub fn owes(&self) -> bool {
        self.0.priced && self.0.debt.get() > 0
    }

    /// Pays the current task's debt on the described CPU. Ready at once on a real machine; where even that is too much, ask
    /// [`Executor::owes`] first.
    #[inline]
    pub async fn pay_debt(&self) {
        if self.owes() {
            let instructions = self.0.debt.take();
            if self.compute_alone(instructions) {
                return;
            }
            self.perform(Op::Cpu { instructions, class: Class::User }).await;
        }
    }

    /// The engine's steps touch this many bytes of memory from now on.
    pub fn set_footprint(&self, bytes: u64) {
        self.0.driver.borrow_mut().set_footprint(bytes);
    }

    /// Lets the current task's burst pass without suspending the task, if no other task is ready and nothing is to happen
    /// before its end: the driver would report that end next, and this task would run next. Always where tasks keep the CPU
    /// until they wait.
    fn compute_alone(&self, instructions: u64) -> bool {
        let inner = &*self.0;
        let others = !inner.ready.borrow().is_empty() || !inner.yielded_tasks.borrow().is_empty();
        let in_group = inner.member.get().group != Membership::NONE.group;
        if (others || in_group) && !inner.driver.borrow().runs_until_wait() {
            return false;
        }
        let until = inner.timers.borrow().next();
        let alone = inner.driver.borrow_mut().compute_alone(instructions, until);
        if alone {
            inner.round.set(None);
        }
        alone
    }

    /// How often each kind of work was charged, indexed by `Work as usize`.
    pub fn work_counts(&self) -> [u64; Work::ALL.len()] {
        std::array::from_fn(|work| self.0.work_counts[work].get())
    }
}
