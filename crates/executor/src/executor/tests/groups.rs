use super::*;
use crate::Members;
use driver::Access;

/// What members of a group did, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// Its wait is over; it may run when the turn is its own.
    Woken(usize),
    Runs(usize),
    /// It lets others run.
    Yields(usize),
    /// It waits for something else than a CPU, or ends.
    Leaves(usize),
    /// Whether it hears that others would go on if it let them.
    Wanted(bool, usize),
    /// It has another rank from now on.
    Ranks(usize, u8),
}

/// Members that take turns by a naive model: a list of those that are woken, searched for the least rank.
struct Model {
    ranks: Vec<u8>,
    holder: Option<usize>,
    woken: Vec<usize>,
}

impl Model {
    fn pass(&mut self) {
        let first = (0..self.woken.len()).min_by_key(|place| (self.ranks[self.woken[*place]], *place));
        self.holder = first.map(|place| self.woken.remove(place));
    }

    fn follow(&mut self, event: Event) {
        match event {
            Event::Woken(member) => {
                self.woken.push(member);
                if self.holder.is_none() {
                    self.pass();
                }
            }
            Event::Runs(member) => assert_eq!(self.holder, Some(member), "it runs out of turn"),
            Event::Yields(member) => {
                assert_eq!(self.holder, Some(member));
                self.woken.push(member);
                self.pass();
            }
            Event::Ranks(member, rank) => self.ranks[member] = rank,
            Event::Wanted(wanted, member) => {
                let found = self.woken.iter().any(|other| self.ranks[*other] <= self.ranks[member]);
                assert_eq!(wanted, found);
            }
            Event::Leaves(member) => {
                assert_eq!(self.holder, Some(member));
                self.pass();
            }
        }
    }
}

struct Scene {
    executor: Executor,
    log: RefCell<Vec<Event>>,
    /// The waiting tasks, by member.
    waiting: RefCell<Vec<Option<TaskId>>>,
    permits: RefCell<Vec<bool>>,
}

impl Scene {
    fn tell(&self, event: Event) {
        self.log.borrow_mut().push(event);
    }

    async fn wait(&self, member: usize) {
        self.tell(Event::Leaves(member));
        poll_fn(|_| {
            if std::mem::take(&mut self.permits.borrow_mut()[member]) {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut()[member] = Some(self.executor.current());
            Poll::Pending
        })
        .await;
        self.tell(Event::Runs(member));
    }

    async fn live(self: Rc<Self>, member: usize, mut random: Random) {
        self.tell(Event::Runs(member));
        for _ in 0..random.between(1, 20) {
            match random.below(5) {
                0 => self.wait(member).await,
                1 => {
                    let rank = random.below(3) as u8;
                    self.executor.set_rank(rank);
                    self.tell(Event::Ranks(member, rank));
                }
                2 => {
                    self.tell(Event::Wanted(self.executor.is_turn_wanted(), member));
                    self.tell(Event::Yields(member));
                    self.executor.yield_now().await;
                    self.tell(Event::Runs(member));
                }
                _ => {
                    self.executor.charge(Work::ObjectReference);
                    self.executor.pay_debt().await;
                    self.tell(Event::Runs(member));
                }
            }
        }
        self.tell(Event::Leaves(member));
    }

    /// Ends waits at random, from outside the group.
    async fn wake(self: Rc<Self>, mut random: Random) {
        let members = self.permits.borrow().len();
        loop {
            self.executor.sleep_ns(random.between(1, 3_000)).await;
            for member in 0..members {
                if random.chance(0.3)
                    && let Some(task) = self.waiting.borrow_mut()[member].take()
                {
                    self.permits.borrow_mut()[member] = true;
                    self.tell(Event::Woken(member));
                    self.executor.wake(task);
                }
            }
        }
    }
}

#[test]
fn one_member_runs_and_the_turn_goes_by_rank_and_order() {
    for seed in 0..60 {
        let mut random = Random::stream(seed, "scene");
        let order = if seed % 2 == 0 { Order::FirstInFirstOut } else { Order::Seeded(seed) };
        let executor = Bench::executor(order);
        let ranks: Vec<u8> = (0..random.between(2, 8)).map(|_| random.below(3) as u8).collect();
        let scene = Rc::new(Scene {
            executor: executor.clone(),
            log: RefCell::default(),
            waiting: RefCell::new(vec![None; ranks.len()]),
            permits: RefCell::new(vec![false; ranks.len()]),
        });
        let server = executor.group("server", Members::InTurn);
        let members: Vec<_> = (0..ranks.len())
            .map(|member| {
                scene.tell(Event::Woken(member));
                let stream = Random::stream(seed, &format!("member {member}"));
                executor.spawn_in(server, ranks[member], Rc::clone(&scene).live(member, stream))
            })
            .collect();
        executor.spawn(Rc::clone(&scene).wake(random));
        executor.run(futures_join(members)).expect("all members end");
        let mut model = Model { ranks, holder: None, woken: Vec::new() };
        scene.log.borrow().iter().for_each(|event| model.follow(*event));
        assert_eq!((model.holder, model.woken.len()), (None, 0), "seed {seed}: no member is left behind");
        executor.stop();
    }
}

#[test]
fn tasks_join_their_parents_group_and_pay_on_its_account() {
    let executor = Bench::executor(Order::FirstInFirstOut);
    let (bank, audit) = (executor.group("bank", Members::InTurn), executor.group("audit", Members::Free));
    let clone = executor.clone();
    let parent = executor.spawn_in(bank, 3, async move {
        let other = clone.clone();
        let child = clone.spawn(async move {
            other.charge(Work::ObjectReference);
            other.pay_debt().await;
        });
        clone.charge_instructions(5);
        clone.pay_debt().await;
        child.join().await;
    });
    let clone = executor.clone();
    let watch = executor.spawn_in(audit, 0, async move {
        clone.charge_instructions(7);
        clone.pay_debt().await;
    });
    executor.run(futures_join(vec![parent, watch])).expect("runs to the end");
    // An instruction takes 100 ns.
    assert_eq!(executor.accounts(), [("bank", 1_500), ("audit", 700)]);
    assert_eq!(executor.group("bank", Members::InTurn), bank, "a name is one group");
    executor.restart_statistics();
    assert_eq!(executor.cpu_ns(bank), 0);
}

#[test]
fn a_synchronous_access_keeps_the_turn_and_another_passes_it() {
    for (access, expected) in [
        (Access::Synchronous { instructions: 1 }, ["first", "first goes on", "second"]),
        (Access::Asynchronous, ["first", "second", "first goes on"]),
    ] {
        let executor = Bench::executor(Order::FirstInFirstOut);
        let server = executor.group("server", Members::InTurn);
        let log = Rc::new(RefCell::new(Vec::new()));
        let (clone, told) = (executor.clone(), Rc::clone(&log));
        let first = executor.spawn_in(server, 0, async move {
            told.borrow_mut().push("first");
            let buffer = clone.frame(512).expect("there is memory");
            let file = driver::FileId(0);
            clone.perform(Op::Write { file, offset: 0, length: 512, buffer, durable: true, access }).await;
            told.borrow_mut().push("first goes on");
        });
        let told = Rc::clone(&log);
        let second = executor.spawn_in(server, 1, async move { told.borrow_mut().push("second") });
        executor.run(futures_join(vec![first, second])).expect("runs to the end");
        assert_eq!(*log.borrow(), expected);
    }
}

#[test]
fn on_a_real_machine_time_goes_to_the_group_that_has_the_cpu() {
    let directory = tempfile::tempdir().expect("a directory");
    let driver = real_driver::RealDriver::open(real_driver::Options::new("disk", directory.path())).expect("opens");
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let (long, short) = (executor.group("long", Members::InTurn), executor.group("short", Members::Free));
    let work = |group, ns: u64| {
        let clone = executor.clone();
        executor.spawn_in(group, 0, async move {
            for _ in 0..4 {
                let end = clone.now().plus_ns(ns);
                while clone.now() < end {}
                clone.sleep_ns(2_000_000).await;
            }
        })
    };
    let tasks = vec![work(long, 3_000_000), work(short, 1_000_000)];
    let began = executor.now();
    executor.run(futures_join(tasks)).expect("runs to the end");
    let (elapsed, long, short) = (executor.now().since_ns(began), executor.cpu_ns(long), executor.cpu_ns(short));
    assert!(long >= 12_000_000 && short >= 4_000_000, "{long} {short}");
    assert!(long + short < elapsed, "sleeping is not accounted: {long} + {short} of {elapsed}");
}
