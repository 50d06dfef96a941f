use super::*;
use driver::{Access, Class, DeviceId, Fault, FileId, Frame, Output, Prices};
use driver::{DeviceTraits, Doorbell, StationReport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A driver whose operations take one microsecond each and whose clock jumps. A synchronous access takes half of one, in which nothing else runs.
struct Bench {
    now: Instant,
    pending: BTreeMap<(Instant, u64), Completion>,
    cancelled: u64,
}

impl Bench {
    fn executor(order: Order) -> Executor {
        Executor::new(Box::new(Bench { now: Instant::START, pending: BTreeMap::new(), cancelled: 0 }), order)
    }
}

#[test]
fn a_run_within_a_run_is_refused() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let within = executor.run(async { executor.run(async { 1 }) });
    assert_eq!(within, Ok(Err(Halt::Nested)));
    let spawned = executor.clone();
    let within = executor.spawn(async move { spawned.run(async { 1 }) });
    assert_eq!(executor.run(within.join()), Ok(Err(Halt::Nested)));
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run(async { panic!("on purpose") })));
    assert!(panicked.is_err());
    assert_eq!(executor.run(async { 1 }), Ok(1));
}

struct Silent;
impl Doorbell for Silent {
    fn ring(&self) {}
}

impl Driver for Bench {
    fn now(&self) -> Instant {
        self.now
    }
    fn submit(&mut self, token: Token, op: Op) {
        if matches!(op, Op::Read { access: Access::Synchronous { .. }, .. }) {
            self.now = self.now.plus_ns(500);
        }
        let completion = Completion { token, result: Ok(Output::Done), buffer: None };
        self.pending.insert((self.now.plus_ns(1_000), token.0), completion);
    }
    fn cancel(&mut self, _: Token) {
        self.cancelled += 1;
    }
    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let next = self.pending.keys().next().map(|(at, _)| *at);
        let target = match (next, until) {
            (None, None) => return Err(Halt::Idle),
            (Some(at), Some(until)) => at.min(until),
            (at, until) => at.or(until).expect("one is set"),
        };
        self.now = self.now.max(target);
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            done.push(entry.remove());
        }
        Ok(())
    }
    fn entropy(&mut self) -> u128 {
        0
    }
    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        Ok(Frame::allocate(count, size))
    }
    fn device(&self, _: &str) -> Option<DeviceId> {
        None
    }
    fn traits(&self, _: DeviceId) -> DeviceTraits {
        DeviceTraits { atomic_write: 512, untorn_on_request: 0, alignment: 512, synchronous: false, durable: true }
    }
    fn prices(&self) -> Option<Prices> {
        Some(Prices { instructions: [10; Work::ALL.len()], exponential: false, instruction_ns: 100.0, seed: 0 })
    }
    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::new(Silent)
    }
    fn description(&self) -> String {
        "bench".into()
    }
    fn stations(&self) -> Vec<StationReport> {
        Vec::new()
    }
    fn restart_statistics(&mut self) {}
}

#[test]
fn tasks_run_in_order_and_sleepers_wake_on_time() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let log = Rc::new(RefCell::new(Vec::new()));
    let handles: Vec<_> = [30_u64, 10, 20]
        .into_iter()
        .map(|ns| {
            let (executor, log) = (executor.clone(), Rc::clone(&log));
            executor.clone().spawn(async move {
                executor.sleep_ns(ns).await;
                log.borrow_mut().push((executor.now().ns(), ns));
            })
        })
        .collect();
    executor.run(async { futures_join(handles).await }).expect("runs to the end");
    assert_eq!(*log.borrow(), [(10, 10), (20, 20), (30, 30)]);
}

async fn futures_join(handles: Vec<JoinHandle<()>>) {
    for handle in handles {
        handle.join().await;
    }
}

/// The clock goes on during it, and no driver is asked in between.
#[test]
fn a_rounds_moment_is_the_present_one_behind_a_synchronous_access() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let moments = executor.run(async {
        let before = executor.round_now();
        let buffer = executor.frame(512).expect("memory");
        let access = Access::Synchronous { instructions: 1 };
        executor.submit(Op::Read { file: FileId(0), offset: 0, buffer, length: 512, access }, |_| {});
        [before, executor.round_now(), executor.now()]
    });
    let [before, behind, now] = moments.expect("runs to the end");
    assert_eq!((behind, now.since_ns(before)), (now, 500));
}

#[test]
fn a_dropped_operation_is_orphaned_and_its_slot_reused() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    executor
        .run(async {
            {
                let mut op = pin!(executor.perform(Op::Cpu { instructions: 1, class: Class::User }));
                let first = poll_fn(|context| Poll::Ready(op.as_mut().poll(context))).await;
                assert!(first.is_pending());
            }
            for _ in 0..3 {
                executor.perform(Op::Cpu { instructions: 1, class: Class::User }).await;
            }
        })
        .expect("runs to the end");
    assert_eq!(executor.operations().in_flight(), 0);
}

#[test]
fn charges_are_paid_once_and_by_their_own_task() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    executor
        .run(async {
            executor.charge(Work::BeginTransaction);
            let other = executor.clone();
            let handle = executor.spawn(async move {
                assert_eq!(other.take_debt(), 0);
                other.charge(Work::ObjectReference);
                other.pay_debt().await;
            });
            handle.join().await;
            assert_eq!(executor.now().ns(), 1_000);
            executor.charge_instructions(7);
            assert_eq!(executor.take_debt(), 17);
        })
        .expect("runs to the end");
    assert_eq!(executor.work_counts()[Work::ObjectReference as usize], 1);
}

#[test]
fn handlers_run_without_a_task_and_a_silent_machine_halts() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let seen = Rc::new(Cell::new(false));
    let flag = Rc::clone(&seen);
    executor.submit(Op::Cpu { instructions: 1, class: Class::User }, move |_| flag.set(true));
    let queue = WaitQueue::new();
    let result = executor.run(async { queue.wait(&executor).await });
    assert_eq!(result, Err(Halt::Idle));
    assert!(seen.get());
}

#[test]
fn a_seed_fixes_the_order() {
    let order = |seed| {
        let executor = Bench::executor(Order::Seeded(seed));
        let log = Rc::new(RefCell::new(Vec::new()));
        for n in 0..20 {
            let (executor, log) = (executor.clone(), Rc::clone(&log));
            executor.clone().spawn(async move {
                for _ in 0..3 {
                    log.borrow_mut().push(n);
                    executor.yield_now().await;
                }
            });
        }
        executor.run(executor.sleep_ns(5_000)).expect("runs to the end");
        log.take()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn who_gives_way_lets_the_busy_go_first_but_not_for_ever() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let (yielded_tasks, busy) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (steps, giving) = (Rc::clone(&yielded_tasks), executor.clone());
    executor.spawn(async move {
        loop {
            steps.set(steps.get() + 1);
            giving.yield_until_idle().await;
        }
    });
    let (turns, yielding) = (Rc::clone(&busy), executor.clone());
    let worker = executor.spawn(async move {
        for _ in 0..10_000 {
            turns.set(turns.get() + 1);
            yielding.yield_now().await;
        }
    });
    executor.run(worker.join()).expect("runs to the end");
    assert_eq!(busy.get(), 10_000);
    assert!((100..=1_000).contains(&yielded_tasks.get()), "{} steps beside 10,000", yielded_tasks.get());
    // Alone it need not wait.
    let alone = yielded_tasks.get();
    executor.run(executor.yield_until_idle()).expect("runs to the end");
    assert!(yielded_tasks.get() > alone);
}

#[test]
fn an_abandoned_waiter_passes_its_wake_on() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let queue = Rc::new(WaitQueue::new());
    let passed = Rc::new(Cell::new(false));
    let (patient, flag, shared) = (executor.clone(), Rc::clone(&passed), Rc::clone(&queue));
    executor
        .run(async {
            let mut abandoned = Box::pin(queue.wait(&executor));
            assert!(poll_fn(|context| Poll::Ready(abandoned.as_mut().poll(context))).await.is_pending());
            executor.spawn(async move {
                shared.wait(&patient).await;
                flag.set(true);
            });
            executor.yield_now().await;
            assert!(queue.wake_one(&executor));
            drop(abandoned);
            // The first wake also queued this task, ahead of the one that it was passed on to.
            executor.yield_now().await;
            executor.yield_now().await;
            assert!(passed.get() && queue.is_empty());
        })
        .expect("runs to the end");
}

mod groups;

#[test]
fn a_stopped_executor_has_no_driver_any_more_though_others_still_have_it() {
    struct Held(Rc<Cell<bool>>, Bench);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    impl Driver for Held {
        fn now(&self) -> Instant {
            self.1.now()
        }
        fn submit(&mut self, token: Token, op: Op) {
            self.1.submit(token, op);
        }
        fn cancel(&mut self, token: Token) {
            self.1.cancel(token);
        }
        fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
            self.1.park(until, done)
        }
        fn entropy(&mut self) -> u128 {
            self.1.entropy()
        }
        fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
            self.1.frames(count, size)
        }
        fn device(&self, name: &str) -> Option<DeviceId> {
            self.1.device(name)
        }
        fn traits(&self, device: DeviceId) -> DeviceTraits {
            self.1.traits(device)
        }
        fn prices(&self) -> Option<driver::Prices> {
            self.1.prices()
        }
        fn doorbell(&self) -> Arc<dyn Doorbell> {
            self.1.doorbell()
        }
        fn description(&self) -> String {
            self.1.description()
        }
        fn stations(&self) -> Vec<StationReport> {
            self.1.stations()
        }
        fn restart_statistics(&mut self) {}
    }
    /// Spawns a task when it is dropped, as a transaction does that is not ended.
    struct Spawns(Executor);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let executor = self.0.clone();
            self.0.spawn(async move { executor.sleep_ns(1).await });
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let bench = Bench { now: Instant::START, pending: BTreeMap::new(), cancelled: 0 };
    let executor = Executor::new(Box::new(Held(Rc::clone(&dropped), bench)), Order::FirstInFirstOut);
    let spawns = Spawns(executor.clone());
    executor.spawn(async move {
        let _spawns = &spawns;
        std::future::pending::<()>().await;
    });
    executor.run(executor.sleep_ns(5)).expect("time passes");
    let other = executor.clone();
    executor.stop();
    assert!(dropped.get(), "what the driver has under way has ended");
    assert_eq!(other.now(), Instant::from_ns(5));
    let refused = other.run(other.perform(Op::Cpu { instructions: 1, class: Class::User })).expect("it is answered");
    assert!(matches!(refused.result, Err(fault) if fault.kind == driver::FaultKind::Cancelled));
    assert_eq!(other.run(std::future::pending::<()>()), Err(Halt::Idle));
    drop(other);
    let inner = Rc::downgrade(&executor.0);
    drop(executor);
    assert!(inner.upgrade().is_none(), "no task that was spawned later keeps it");
}

#[test]
fn a_wait_with_an_end_gives_what_is_ready_by_then_and_drops_the_rest() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let (early, late) = executor
        .run(async {
            let early = executor.within(2_000, executor.sleep_ns(1_000)).await;
            (early, executor.within(2_000, executor.sleep_ns(3_000)).await)
        })
        .expect("the machine goes on");
    assert_eq!((early, late), (Some(()), None));
    assert_eq!(executor.now(), Instant::from_ns(3_000));
}

fn fails(executor: &Executor) -> JoinHandle<()> {
    executor.spawn(async { panic!("on purpose") })
}

fn is_panic<T>(work: impl FnOnce() -> T) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

#[test]
fn a_panic_goes_on_through_run_unless_it_is_contained() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    drop(fails(&executor));
    assert!(is_panic(|| executor.run(executor.yield_now())));
    let told = Rc::new(Cell::new(0));
    let telling = Rc::clone(&told);
    executor.contain_panics(move |panic| {
        telling.set(telling.get() + 1);
        panic
    });
    drop(fails(&executor));
    assert_eq!(executor.run(executor.sleep_ns(1)), Ok(()));
    assert_eq!(told.get(), 1);
    let joined = fails(&executor);
    assert!(is_panic(|| executor.run(joined.join())), "who joins it panics");
    assert_eq!(executor.run(async { 1 }), Ok(1));
}

#[test]
fn a_librarys_own_panic_is_not_contained() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    executor.contain_panics(|panic| panic);
    drop(fails(&executor.of_library()));
    assert!(is_panic(|| executor.run(executor.sleep_ns(1))));
}

#[test]
fn what_must_not_be_contained_goes_on() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    executor.contain_panics(|panic| std::panic::resume_unwind(panic));
    drop(fails(&executor));
    assert!(is_panic(|| executor.run(executor.sleep_ns(1))));
}
