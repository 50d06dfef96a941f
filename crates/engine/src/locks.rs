//! The locks of transactions: the one place where they are asked for, waited for and given back.
//!
//! What can be granted at once is granted in the step that asks. Everything else is waited for with [`Locks::wait`], from
//! which an owner also learns that it is a deadlock's victim. Callers see no queues, no tasks and no cycles. So a lock that
//! another node has to grant is to them one more that is not granted at once.
//!
//! The table itself, which never waits, is [`structures::lock`].

mod ranges;
mod waiters;

use crate::{Error, Result};
use base::{Instant, Lsn};
use executor::{Executor, Relay, TaskId};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use structures::lock::{
    Attempt, KeyRanges, LockStatistics, LockTable, Mode, Outcome, Owner, Resource, VictimPolicy, Violation,
};
use waiters::LockWaiters;

/// All locks of a database, and the tasks that wait for them.
pub struct Locks {
    executor: Executor,
    table: RefCell<LockTable>,
    ranges: RefCell<KeyRanges>,
    /// Whether an owner has a range, and whether one has marked a key.
    are_ranges_held: Cell<bool>,
    are_keys_marked: Cell<bool>,
    /// Owners that may have read up to the end of a partition, and whether there are any.
    end_readers: RefCell<Vec<Owner>>,
    are_ends_read: Cell<bool>,
    /// The waiting tasks.
    waiters: Rc<LockWaiters>,
    /// Owners that must give up: few, and none most of the time.
    victims: RefCell<Vec<Owner>>,
}

/// What came of asking for a lock.
#[derive(Debug)]
#[must_use]
pub(crate) enum Grant {
    /// It is held. This LSN must be durable before anything may be told that is read under it.
    Granted(Lsn),
    /// It is not held yet: [`Locks::wait`] has to be awaited, unless the owner ends.
    Wait(Ungranted),
}

/// A lock that is not granted yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ungranted(Outcome);

impl Ungranted {
    /// The owner that has to give up if waiting would close a cycle.
    pub fn victim(&self) -> Option<Owner> {
        match self.0 {
            Outcome::Deadlock { victim } => Some(victim),
            _ => None,
        }
    }
}

impl Locks {
    /// No locks yet. Deadlocks are resolved by `policy`.
    pub(crate) fn new(executor: &Executor, policy: VictimPolicy) -> Locks {
        Locks {
            executor: executor.clone(),
            table: RefCell::new(LockTable::new(policy)),
            ranges: RefCell::default(),
            are_ranges_held: Cell::new(false),
            are_keys_marked: Cell::new(false),
            end_readers: RefCell::default(),
            are_ends_read: Cell::new(false),
            waiters: Rc::new(LockWaiters::new(executor)),
            victims: RefCell::default(),
        }
    }

    /// Asks for a lock for an owner that began at `began`, by which the youngest is found.
    #[inline]
    pub(crate) fn acquire(&self, owner: Owner, began: u64, resource: Resource, mode: Mode) -> Grant {
        let mut table = self.table.borrow_mut();
        match table.request(owner, resource, mode, began) {
            Outcome::Granted => Grant::Granted(table.dependency(resource)),
            outcome => Grant::Wait(Ungranted(outcome)),
        }
    }

    /// Waits until the owner's lock is granted. If this fails or is abandoned, the request is withdrawn, and
    /// so is the change for which the owner may have waited for readers. `hopeless` says why the
    /// lock will not come, if it knows; it is asked whenever [`Locks::wake_waiters`] was called, and at the moment `until`.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if the owner is a deadlock's victim; what `hopeless` says.
    #[cold]
    pub(crate) async fn wait(
        &self,
        owner: Owner,
        ungranted: Ungranted,
        until: Option<Instant>,
        hopeless: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        if let Some(victim) = ungranted.victim() {
            if victim == owner {
                return Err(Error::Deadlock);
            }
            self.set_victim(victim);
            self.wake([victim]);
        }
        self.waiters.enter(owner, until);
        let mut waiting = QueuedRequest { locks: self, owner, is_granted: false };
        let mut relay = Relay::default();
        let waited = poll_fn(|context| {
            if self.is_victim(owner) {
                return Poll::Ready(Err(Error::Deadlock));
            }
            if self.table.borrow().waiting(owner).is_none() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = hopeless() {
                return Poll::Ready(Err(error));
            }
            self.waiters.set_task(owner, self.executor.waiter(context, &mut relay));
            Poll::Pending
        })
        .await;
        waiting.is_granted = waited.is_ok();
        waited
    }

    /// Asks for a lock that the owner can do without for now. Returns the LSN of [`Grant::Granted`], or `None` if it is not
    /// granted at once: then nothing has changed.
    #[inline]
    #[must_use]
    pub(crate) fn try_acquire(&self, owner: Owner, resource: Resource, mode: Mode) -> Option<Lsn> {
        let mut table = self.table.borrow_mut();
        match table.try_request(owner, resource, mode) {
            Attempt::Granted => Some(table.dependency(resource)),
            Attempt::Denied => None,
        }
    }

    /// Asks for a lock of instant duration: it is given back at once unless the owner has held the resource before. Says in
    /// which mode it has, or `None` if the lock is not granted at once.
    #[must_use]
    pub(crate) fn pass(&self, owner: Owner, resource: Resource, mode: Mode) -> Option<Option<Mode>> {
        let mut table = self.table.borrow_mut();
        let held = table.holds(owner, resource);
        if table.try_request(owner, resource, mode) == Attempt::Denied {
            return None;
        }
        if held.is_none() {
            let mut granted = Vec::new();
            table.release(owner, resource, &mut granted);
            drop(table);
            self.wake(granted);
        }
        Some(held)
    }

    /// Releases all of the owner's locks. With the LSN of its commit record, owners that lock what it has written depend on
    /// that.
    #[inline]
    pub(crate) fn release_all(&self, owner: Owner, commit: Option<Lsn>) {
        self.release_ranges(owner, commit);
        let mut granted = Vec::new();
        {
            let mut table = self.table.borrow_mut();
            match commit {
                Some(lsn) => table.release_all_stamped(owner, lsn, &mut granted),
                None => table.release_all(owner, &mut granted),
            }
        }
        // Seldom does one wait.
        if !granted.is_empty() {
            self.wake(granted);
        }
    }

    /// An owner that holds nothing has ended: its number may be given to another.
    #[inline]
    pub(crate) fn retire(&self, owner: Owner) {
        debug_assert_eq!(self.held(owner), 0, "an ended transaction holds no lock");
        let mut victims = self.victims.borrow_mut();
        if !victims.is_empty() {
            victims.retain(|other| *other != owner);
        }
    }

    /// From now on the owner must give up: the locks that it waits for will not be granted.
    #[cold]
    pub(crate) fn set_victim(&self, owner: Owner) {
        if !self.is_victim(owner) {
            self.victims.borrow_mut().push(owner);
        }
    }

    /// Whether the owner must give up.
    #[inline]
    pub(crate) fn is_victim(&self, owner: Owner) -> bool {
        let victims = self.victims.borrow();
        !victims.is_empty() && victims.contains(&owner)
    }

    /// Has every waiting task look again whether its wait is hopeless.
    pub(crate) fn wake_waiters(&self) {
        self.waiters.wake_all();
    }

    /// The LSN that must be durable before anything may be told that is read under a lock on `resource` granted now.
    #[inline]
    pub(crate) fn dependency(&self, resource: Resource) -> Lsn {
        self.table.borrow().dependency(resource)
    }

    /// In which mode the owner holds the resource.
    #[inline]
    pub(crate) fn holds(&self, owner: Owner, resource: Resource) -> Option<Mode> {
        self.table.borrow().holds(owner, resource)
    }

    /// How many resources the owner holds.
    #[inline]
    pub(crate) fn held(&self, owner: Owner) -> usize {
        self.table.borrow().held(owner)
    }

    /// Whether the resource is held at all.
    #[inline]
    pub(crate) fn is_held(&self, resource: Resource) -> bool {
        self.table.borrow().is_held(resource)
    }

    /// Whether one owner waits for the other, not by way of third ones.
    pub(crate) fn waits_for(&self, owner: Owner, other: Owner) -> bool {
        self.table.borrow().waits_for(owner, other)
    }

    /// The owners that an owner waits for, not by way of third ones.
    pub(crate) fn blockers(&self, owner: Owner) -> Vec<Owner> {
        self.table.borrow().blockers(owner)
    }

    /// The owner whose wait a task is in.
    pub(crate) fn waiting_in(&self, task: TaskId) -> Option<Owner> {
        self.waiters.waiting_in(task)
    }

    /// What an owner waits for, and in which mode.
    pub(crate) fn wanted(&self, owner: Owner) -> Option<(Resource, Mode)> {
        let table = self.table.borrow();
        Some((table.waiting(owner)?, table.waiting_mode(owner)?))
    }

    /// The owners that wait, and since when.
    pub(crate) fn waiting(&self) -> Vec<(Owner, Instant)> {
        self.waiters.waiting()
    }

    /// What was counted since the database was opened or [`Locks::restart_statistics`] was called.
    pub fn statistics(&self) -> LockStatistics {
        self.table.borrow().statistics()
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&self) {
        self.table.borrow_mut().restart_statistics();
    }

    /// Checks every invariant of the locks. For tests: it looks at all of them.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.ranges.borrow().is_sound().then_some(()).ok_or(Violation::Ranges)?;
        self.table.borrow().check()
    }

    /// Wakes the tasks of these owners, if they wait.
    #[inline]
    fn wake(&self, owners: impl IntoIterator<Item = Owner>) {
        owners.into_iter().for_each(|owner| self.waiters.wake(owner));
    }
}

/// A request that waits. Withdrawn when dropped, unless it was granted, with the change that the owner was about to make.
struct QueuedRequest<'a> {
    locks: &'a Locks,
    owner: Owner,
    is_granted: bool,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let mut granted = Vec::new();
        self.locks.table.borrow_mut().cancel(self.owner, &mut granted);
        self.locks.waiters.leave(self.owner);
        self.locks.wake(granted);
        if !self.is_granted {
            self.locks.withdraw_change(self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::tests::on_a_machine;
    use base::PartitionId;
    use base::time::MILLISECOND_NS;
    use std::rc::Rc;

    fn record(number: u64) -> Resource {
        Resource::record(PartitionId(1), number)
    }

    /// Has an owner lock a record, waiting if need be.
    async fn lock(locks: &Locks, owner: u32, number: u64) -> Result<()> {
        match locks.acquire(Owner(owner), u64::from(owner), record(number), Mode::Exclusive) {
            Grant::Granted(_) => Ok(()),
            Grant::Wait(ungranted) => locks.wait(Owner(owner), ungranted, None, || None).await,
        }
    }

    #[test]
    fn a_lock_that_is_given_back_goes_to_the_task_that_waits() {
        let done = on_a_machine(async |executor| {
            let locks = Rc::new(Locks::new(executor, VictimPolicy::Requester));
            lock(&locks, 0, 7).await?;
            let waiting = {
                let locks = Rc::clone(&locks);
                executor.spawn(async move { lock(&locks, 1, 7).await })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            assert!(!waiting.is_finished());
            locks.release_all(Owner(0), Some(Lsn(40)));
            waiting.join().await?;
            assert_eq!(locks.holds(Owner(1), record(7)), Some(Mode::Exclusive));
            assert_eq!(locks.dependency(record(7)), Lsn(40), "what the commit has written may not be durable yet");
            assert_eq!(locks.check(), Ok(()));
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_wait_that_is_abandoned_leaves_the_queue_to_those_behind_it() {
        let done = on_a_machine(async |executor| {
            let locks = Rc::new(Locks::new(executor, VictimPolicy::Requester));
            assert!(matches!(locks.acquire(Owner(0), 0, record(7), Mode::Shared), Grant::Granted(_)));
            let Grant::Wait(ungranted) = locks.acquire(Owner(1), 1, record(7), Mode::Exclusive) else {
                panic!("it is held")
            };
            let reader = {
                let mut abandoned = Box::pin(locks.wait(Owner(1), ungranted, None, || None));
                poll_fn(|context| {
                    assert!(abandoned.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                let locks = Rc::clone(&locks);
                let reader = executor.spawn(async move {
                    match locks.acquire(Owner(2), 2, record(7), Mode::Shared) {
                        Grant::Granted(_) => Ok(()),
                        Grant::Wait(ungranted) => locks.wait(Owner(2), ungranted, None, || None).await,
                    }
                });
                executor.sleep_ns(MILLISECOND_NS).await;
                assert!(!reader.is_finished(), "queues are fair");
                reader
            };
            reader.join().await?;
            assert_eq!(locks.waiting().len(), 0, "nothing wakes a task for a wait that is over");
            assert_eq!(locks.check(), Ok(()));
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_victim_that_waits_is_told_and_another_owner_of_its_number_is_not() {
        let done = on_a_machine(async |executor| {
            let locks = Rc::new(Locks::new(executor, VictimPolicy::Youngest));
            lock(&locks, 0, 7).await?;
            lock(&locks, 1, 8).await?;
            let victim = {
                let locks = Rc::clone(&locks);
                executor.spawn(async move {
                    let waited = lock(&locks, 1, 7).await;
                    locks.release_all(Owner(1), None);
                    waited
                })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            lock(&locks, 0, 8).await?;
            assert_eq!(victim.join().await, Err(Error::Deadlock));
            assert!(locks.is_victim(Owner(1)) && !locks.is_victim(Owner(0)));
            locks.retire(Owner(1));
            assert!(!locks.is_victim(Owner(1)));
            assert_eq!(locks.statistics().deadlocks, 1);
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_lock_of_instant_duration_stays_only_if_it_was_held() {
        let done = on_a_machine(async |executor| {
            let locks = Locks::new(executor, VictimPolicy::Requester);
            let (gap, mode) = (Resource::secondary_gap(PartitionId(1), 0, 7), Mode::InsertIntention);
            assert_eq!(locks.pass(Owner(0), gap, mode), Some(None));
            assert_eq!(locks.held(Owner(0)), 0);
            assert_eq!(locks.try_acquire(Owner(1), gap, Mode::Shared), Some(Lsn::ZERO));
            assert_eq!(locks.pass(Owner(0), gap, mode), None, "the range was read");
            assert_eq!(locks.pass(Owner(1), gap, mode), Some(Some(Mode::Shared)));
            assert!(locks.is_held(gap));
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }
}
