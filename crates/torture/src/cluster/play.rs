//! A scenario from its beginning to its end: what its schedule says is done to the cluster, all is mended, and it is judged.

mod closing;

use super::course::Course;
use super::machines::{Failing, Machines};
use super::node::NodeProgram;
use super::own_snapshots::OwnReader;
use super::schedule::{Act, Planned, Rights};
use super::serving::{self, AllRights};
use super::{
    ClusterEvent, ClusterFailure, ClusterFault, ClusterOptions, ClusterOutcome, ClusterShape, ClusterStep, Schedule,
    judge, space,
};
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use engine::Database;
use executor::{Cluster, Executor, JoinHandle, Stop};
use node::page_server::{PageServer, ServerInternals};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use virtual_driver::OneWay;

/// When trouble begins: then all nodes have joined for the first time.
pub(super) const TROUBLE_FROM_NS: u64 = 500 * MILLISECOND_NS;
/// How long it is waited for a step, and how often it is looked for.
const STEP_PATIENCE_NS: u64 = 400 * MILLISECOND_NS;
const STEP_LOOK_NS: u64 = 100 * MICROSECOND_NS;
/// How often a server looks whether its log has failed.
const FAILURE_LOOK_NS: u64 = 50 * MILLISECOND_NS;
/// How long a node may take to commit when all is mended: it may still wait for a server that does not answer an introduction, then for
/// leases, then for a page that another node was to send.
const MENDED_MAX_NS: u64 = 60 * SECOND_NS;
/// How many transactions each node has to have committed then.
const MENDED_DONE: u64 = 3;
/// How long nodes go on after that, in nanoseconds: more than two leases, in which they lose nothing.
const MENDED_REST_NS: u64 = 5 * SECOND_NS;
/// How often it is looked whether it has.
const MENDED_LOOK_NS: u64 = 50 * MILLISECOND_NS;
/// In this time the last messages arrive.
const QUIET_NS: u64 = 3 * SECOND_NS;

/// Why a scenario does not go on.
type Played = Result<(), Stop>;

pub(super) fn play(seed: u64, options: ClusterOptions) -> ClusterOutcome {
    let shape = ClusterShape::draw(seed, options);
    let schedule = Schedule::draw(seed, &shape, options);
    let course = Rc::new(Course::new(shape.clone(), &schedule));
    course.coverage.borrow_mut().algorithm(shape.algorithm.name());
    for (event, is_met) in [
        (ClusterEvent::ClocksDiffered, shape.clock_gains_ppm.is_some()),
        (ClusterEvent::ClocksAtBound, shape.clocks_are_at_bound()),
    ] {
        course.coverage.borrow_mut().event_times(event, u64::from(is_met));
    }
    let played = catch_unwind(AssertUnwindSafe(|| {
        let machines = Machines::new(seed, &shape);
        let mut scenario = ClusterScenario::new(seed, &course, &machines);
        match scenario.play(&schedule) {
            Ok(()) => {}
            Err(stop) => course.wrong(format!("machine {:?} stops: {:?}", stop.machine, stop.halt)),
        }
        scenario.stop();
        if course.wrong.borrow().is_empty() {
            judge::judge(&course, &machines);
        }
        let injected = machines.network.injected();
        course.coverage.borrow_mut().event_times(ClusterEvent::CameTooLate, injected.stray);
        course.fold(injected.late);
    }));
    if let Err(panic) = played {
        course.wrong(format!("panic: {}", crate::run::message(&*panic)));
    }
    let wrong = course.wrong.take();
    course.fold(course.history.borrow().len() as u64);
    course.fold(wrong.len() as u64);
    let (schedule, shape_words) = (format!("{schedule:?}"), format!("{shape:?}"));
    ClusterOutcome {
        seed,
        hash: course.hash(),
        transactions: course.acknowledged.get(),
        algorithm: shape.algorithm.name(),
        coverage: course.coverage.take(),
        failure: (!wrong.is_empty()).then_some(ClusterFailure { seed, wrong, schedule, shape: shape_words }),
    }
}

/// What runs on a machine.
struct ClusterScenario<'a> {
    course: &'a Rc<Course>,
    machines: &'a Machines,
    seed: u64,
    random: Random,
    cluster: Cluster,
    /// By number; the server's is the first.
    executors: Vec<Executor>,
    programs: BTreeMap<u32, JoinHandle<()>>,
    server: Rc<RefCell<Option<PageServer>>>,
    server_runs: bool,
    /// Whether a write of its log fails before it ends, if it comes to that.
    log_is_to_fail: bool,
    /// Whether operations of its data device may fail before it ends.
    disk_is_to_fail: bool,
    of_disk: Random,
    database: Rc<RefCell<Option<Database>>>,
    /// Whether its opening has failed.
    opening_has_failed: Rc<Cell<bool>>,
    rights: Rc<RefCell<AllRights>>,
    /// What has to be done, in the order of time.
    due: BTreeMap<(Instant, u64), Planned>,
    planned: u64,
}

impl<'a> ClusterScenario<'a> {
    fn new(seed: u64, course: &'a Rc<Course>, machines: &'a Machines) -> ClusterScenario<'a> {
        let mut random = Random::stream(seed, "cluster media");
        // It is not the creation that fails.
        let failing_write = course.shape.log_fails.then(|| random.between(100, 1_500));
        let of_data = |random: &mut Random| Failing::draw_of_data(random, true);
        let disk_fails = course.shape.disk_fails;
        let mut of_disk = Random::stream(seed, "cluster disk faults");
        let of_data = if disk_fails { of_data(&mut of_disk) } else { Vec::new() };
        let (of_server, none) = (Failing { log_write: failing_write, of_data }, Failing::default());
        let start = |number| machines.start(number, if number == 0 { &of_server } else { &none });
        let executors: Vec<Executor> = (0..=course.shape.nodes).map(start).collect();
        ClusterScenario {
            course,
            machines,
            seed,
            random,
            cluster: Cluster::new(executors.iter().cloned()),
            executors,
            programs: BTreeMap::new(),
            server: Rc::default(),
            server_runs: false,
            log_is_to_fail: failing_write.is_some(),
            disk_is_to_fail: disk_fails,
            of_disk,
            database: Rc::default(),
            opening_has_failed: Rc::default(),
            rights: Rc::new(RefCell::new((1..=course.shape.nodes).map(|node| (node, Rights::all())).collect())),
            due: BTreeMap::new(),
            planned: 0,
        }
    }

    fn play(&mut self, schedule: &Schedule) -> Played {
        let creating = self.executors[0].spawn(serving::create(self.executors[0].clone(), self.course.shape.clone()));
        if let Err(error) = self.cluster.run(creating)? {
            self.course.wrong(format!("creating the database: {error}"));
            return Ok(());
        }
        self.spawn_server();
        (1..=self.course.shape.nodes).for_each(|node| self.spawn_node(node));
        let from = self.cluster.now().plus_ns(TROUBLE_FROM_NS);
        for planned in &schedule.planned {
            self.plan(from.plus_ns(planned.at_ns), planned.clone());
        }
        let end = from.plus_ns(self.course.shape.trouble_ns);
        while self.cluster.now() < end {
            let now = self.cluster.now();
            let due = self.due.first_entry().filter(|entry| entry.key().0 <= now);
            if let Some(planned) = due.map(OccupiedEntry::remove) {
                self.await_step(&planned)?;
                match planned.act {
                    Act::CloseServer { down_ns } => self.close_server(down_ns)?,
                    // What commits have not waited for only a close keeps: the history has no word for transactions that nodes were
                    // told of and that are gone.
                    Act::EndServer { down_ns, .. } if !self.course.shape.is_durable => self.close_server(down_ns)?,
                    act => self.perform(act),
                }
                continue;
            }
            let next = self.due.first_key_value().map_or(end, |((at, _), _)| end.min(*at));
            self.cluster.run_until(next.min(now.plus_ns(FAILURE_LOOK_NS)))?;
            self.end_failed_server();
        }
        self.mend();
        self.await_commits()?;
        if self.course.wrong.borrow().is_empty() {
            self.close_beside_work()?;
            self.await_commits()?;
        }
        self.finish()
    }

    fn plan(&mut self, at: Instant, planned: Planned) {
        self.planned += 1;
        self.due.insert((at, self.planned), planned);
    }

    fn plan_after(&mut self, ns: u64, act: Act) {
        self.plan(self.cluster.now().plus_ns(ns), Planned { at_ns: 0, at_step: None, act });
    }

    /// Goes on until the machine that something is planned for does what it is to do then, or has not come to that in time.
    fn await_step(&mut self, planned: &Planned) -> Played {
        let Some(step) = planned.at_step else { return Ok(()) };
        let end = self.cluster.now().plus_ns(STEP_PATIENCE_NS);
        while self.cluster.now() < end && self.step_of(&planned.act) != Some(step) {
            self.cluster.run_until(self.cluster.now().plus_ns(STEP_LOOK_NS))?;
        }
        Ok(())
    }

    /// What the machine is doing that this is done to.
    fn step_of(&self, act: &Act) -> Option<ClusterStep> {
        match act {
            Act::Link { node, .. } | Act::EndNode { node, .. } => self.course.step(*node),
            Act::Grant { node, .. } | Act::Leave { node } => self.course.step(*node),
            Act::Peers { nodes, .. } => self.course.step(nodes.0),
            Act::EndServer { .. } | Act::CloseServer { .. } | Act::Pause { machine: 0, .. } => self.server_step(),
            Act::FillDevice { .. } | Act::FreeDevice | Act::ChangePartitions { .. } => self.server_step(),
            Act::Pause { machine, .. } => self.course.step(*machine),
            Act::StartNode { .. } | Act::StartServer { .. } | Act::GrantAll { .. } => None,
        }
    }

    fn server_step(&self) -> Option<ClusterStep> {
        match &*self.server.borrow() {
            None => self.server_runs.then_some(ClusterStep::Recovery),
            Some(server) if server.protocol().is_gathering() => Some(ClusterStep::Gathering),
            Some(_) if self.course.commits() => Some(ClusterStep::ServerCommit),
            Some(_) => Some(ClusterStep::Serving),
        }
    }

    fn hit(&self, fault: ClusterFault, step: Option<ClusterStep>) {
        step.inspect(|step| self.course.coverage.borrow_mut().hit(fault, *step));
    }

    fn perform(&mut self, act: Act) {
        let step = self.step_of(&act);
        match act {
            Act::Link { fault, node, ns, late_ns } => {
                if self.disturb(fault, (node, 0), ns, late_ns) {
                    self.hit(fault, step);
                }
            }
            Act::Peers { fault, nodes, ns, late_ns } => {
                if self.disturb(fault, nodes, ns, late_ns) {
                    self.hit(fault, step);
                }
            }
            Act::EndNode { fault, node, down_ns } => {
                if step.is_some() {
                    self.hit(fault, step);
                    self.end_node(node, fault);
                    self.plan_after(down_ns, Act::StartNode { node });
                }
            }
            Act::Leave { node } => {
                if self.course.leave(node, &self.executors[node as usize]) {
                    self.hit(ClusterFault::Left, step);
                }
            }
            Act::Pause { machine, ns } => {
                self.hit(ClusterFault::Paused, step);
                self.cluster.pause(machine as usize, self.cluster.now().plus_ns(ns));
            }
            Act::FillDevice { ns } => {
                self.hit(ClusterFault::Full, step);
                self.machines.set_full(true);
                self.plan_after(ns, Act::FreeDevice);
            }
            Act::FreeDevice => self.machines.set_full(false),
            Act::ChangePartitions { number, kind } => {
                let database = self.database.borrow().clone();
                if let Some(database) = database {
                    let course = Rc::clone(self.course);
                    self.executors[0].spawn(space::change_partitions(course, database, (number, kind)));
                }
            }
            Act::CloseServer { .. } => unreachable!("it takes time"),
            Act::StartNode { node } => self.start_node(node),
            Act::EndServer { fault, down_ns, again_ns } => {
                if self.server_runs {
                    self.hit(fault, step);
                    if matches!(step, Some(ClusterStep::Recovery | ClusterStep::Gathering)) {
                        self.course.event(ClusterEvent::ServerStoppedAgain);
                    }
                    self.end_server(fault);
                    self.plan_after(down_ns, Act::StartServer { again_ns });
                }
            }
            Act::StartServer { again_ns } => {
                self.start_server();
                if let Some(ns) = again_ns {
                    let (fault, down_ns) = (ClusterFault::PowerCut, 0);
                    self.plan_after(ns, Act::EndServer { fault, down_ns, again_ns: None });
                }
            }
            Act::Grant { node, rights, ns } => {
                self.hit(ClusterFault::Grant, step);
                self.grant(node, rights);
                self.plan_after(ns, Act::GrantAll { node });
            }
            Act::GrantAll { node } => self.grant(node, Rights::all()),
        }
    }

    /// Disturbs what is between two machines. Whether there was something.
    fn disturb(&mut self, fault: ClusterFault, (one, other): (u32, u32), ns: u64, late_ns: u64) -> bool {
        use ClusterFault::{Broken, Cut, CutIn, CutOut, Hung, PeerBroken, PeerCut, PeerSlow, SlowIn, SlowOut};
        let network = &self.machines.network;
        let from = self.cluster.now();
        let one_way = |machines, late_ns| {
            network.disturb(OneWay { machines, from, until: from.plus_ns(ns), late_ns });
        };
        match fault {
            Cut | PeerCut => [(one, other), (other, one)].into_iter().for_each(|machines| one_way(machines, None)),
            CutOut => one_way((one, other), None),
            CutIn => one_way((other, one), None),
            SlowOut | PeerSlow => one_way((one, other), Some(late_ns)),
            SlowIn => one_way((other, one), Some(late_ns)),
            Broken | PeerBroken => return network.break_connections(one, other) > 0,
            Hung => {
                let (sender, receiver) = if self.random.chance(0.5) { (one, other) } else { (other, one) };
                return network.hang_connections(sender, receiver) > 0;
            }
            ClusterFault::Kill
            | ClusterFault::PowerCut
            | ClusterFault::Left
            | ClusterFault::Grant
            | ClusterFault::Closed
            | ClusterFault::Paused
            | ClusterFault::Full
            | ClusterFault::LogFailed => {
                unreachable!("of no connection")
            }
        }
        true
    }

    fn end_machine(&mut self, number: u32, fault: ClusterFault) {
        if fault == ClusterFault::PowerCut {
            self.machines.network.cut_power(number);
        }
        self.executors[number as usize].stop();
    }

    fn start_machine(&mut self, number: u32) {
        let mut failing = Failing::default();
        if number == 0 {
            failing.log_write = self.draw_failing_write();
            self.disk_is_to_fail = self.course.shape.disk_fails && self.course.mended.get().is_none();
            if self.disk_is_to_fail {
                failing.of_data = Failing::draw_of_data(&mut self.of_disk, false);
            }
        }
        let executor = self.machines.start(number, &failing);
        self.cluster.replace(number as usize, executor.clone());
        self.executors[number as usize] = executor;
    }

    /// Which write of the log of a server that is started fails, if one does.
    fn draw_failing_write(&mut self) -> Option<u64> {
        let is_to_fail = self.course.shape.log_fails && self.course.mended.get().is_none();
        self.log_is_to_fail = is_to_fail;
        is_to_fail.then(|| {
            let most = 8 << self.random.below(8);
            self.random.between(1, most)
        })
    }

    /// The program of a server whose log has failed ends, and is started again.
    fn end_failed_server(&mut self) {
        let serves_no_more = self.server.borrow().as_ref().is_some_and(|server| server.failure().is_some());
        if serves_no_more && !self.log_is_to_fail && !self.disk_is_to_fail {
            self.course.wrong("the server's log has failed by itself".to_owned());
        }
        if self.server_runs && (serves_no_more || self.opening_has_failed.get()) {
            self.hit(ClusterFault::LogFailed, self.server_step());
            self.end_server(ClusterFault::LogFailed);
            let down_ns = if self.random.chance(0.5) { 0 } else { self.random.below(1_000) * MILLISECOND_NS };
            self.plan_after(down_ns, Act::StartServer { again_ns: None });
        }
    }

    fn end_node(&mut self, node: u32, fault: ClusterFault) {
        self.end_machine(node, fault);
        self.programs.remove(&node);
        self.course.end(node);
    }

    fn start_node(&mut self, node: u32) {
        if self.programs.contains_key(&node) {
            return;
        }
        self.start_machine(node);
        self.spawn_node(node);
        self.course.event(ClusterEvent::NodeStarted);
    }

    fn spawn_node(&mut self, node: u32) {
        let executor = self.executors[node as usize].clone();
        let life = self.planned;
        let program = NodeProgram {
            executor: executor.clone(),
            course: Rc::clone(self.course),
            number: node,
            server: self.machines.address(0),
            own: self.machines.address(node),
            random: Random::stream(self.seed, &format!("node {node} from {life}")),
            departure: Rc::default(),
        };
        self.course.enter(node, ClusterStep::Join);
        self.programs.insert(node, executor.spawn(program.run()));
    }

    fn end_server(&mut self, fault: ClusterFault) {
        if fault != ClusterFault::Closed {
            self.count();
        }
        self.end_machine(0, fault);
        self.server.take();
        self.database.take();
        self.server_runs = false;
        self.course.note_close();
        self.machines.treat_media(&mut self.random, fault == ClusterFault::PowerCut);
    }

    fn start_server(&mut self) {
        if !self.server_runs {
            self.start_machine(0);
            self.spawn_server();
            self.course.event(ClusterEvent::ServerStarted);
        }
    }

    fn spawn_server(&mut self) {
        let (executor, shape) = (self.executors[0].clone(), self.course.shape.clone());
        let (course, place) = (Rc::clone(self.course), Rc::clone(&self.server));
        let (address, rights) = (self.machines.address(0), Rc::clone(&self.rights));
        self.server_runs = true;
        self.opening_has_failed = Rc::default();
        let may_fail = self.log_is_to_fail || self.disk_is_to_fail || self.may_be_full();
        let (has_failed, of_database) = (Rc::clone(&self.opening_has_failed), Rc::clone(&self.database));
        let random = Random::stream(self.seed, &format!("own snapshots from {}", self.planned));
        executor.clone().spawn(async move {
            match serving::serve(executor.clone(), shape, address, &rights).await {
                Ok((server, database)) => {
                    if course.shape.reads_own {
                        let (course, database) = (Rc::clone(&course), database.clone());
                        let reader = OwnReader { executor: executor.clone(), course, database, random };
                        executor.spawn(reader.work());
                    }
                    of_database.replace(Some(database));
                    place.replace(Some(server));
                }
                Err(error) if may_fail && course.is_of_failed_device(&error.to_string()) => has_failed.set(true),
                Err(error) => course.wrong(format!("starting the server: {error}")),
            }
        });
    }

    /// Whether the server's data device may be full.
    fn may_be_full(&self) -> bool {
        self.course.shape.fills && self.course.mended.get().is_none()
    }

    fn grant(&mut self, node: u32, rights: Rights) {
        let of_name = |node| serving::name_of(node, self.course.shape.shares_names);
        for (other, of_other) in &mut *self.rights.borrow_mut() {
            if of_name(*other) == of_name(node) {
                *of_other = rights.clone();
            }
        }
        self.tell_rights();
    }

    fn tell_rights(&self) {
        if let Some(server) = &*self.server.borrow()
            && let Err(error) = server.grant(serving::grants(&self.rights.borrow(), self.course.shape.shares_names))
        {
            self.course.wrong(format!("granting: {error}"));
        }
    }

    /// Adds what the server has counted.
    fn count(&self) {
        let server = self.server.borrow();
        let Some(server) = &*server else { return };
        let counts = server.counts();
        if counts.refused_commits > 0 && server.failure().is_none() && !self.disk_is_to_fail {
            self.course.wrong(format!("the server has refused {} commits", counts.refused_commits));
        }
        if let Some(misbehaviour) = server.protocol().last_misbehaviour() {
            self.course.wrong(format!("the server has given up an honest client: {misbehaviour}"));
        }
        let mut coverage = self.course.coverage.borrow_mut();
        for (event, count) in [
            (ClusterEvent::Joined, counts.joined),
            (ClusterEvent::Unheard, counts.unheard),
            (ClusterEvent::GoneCommitting, counts.gone_committing),
            (ClusterEvent::Undecided, counts.undecided_commits),
            (ClusterEvent::Forwarded, counts.forwards),
            (ClusterEvent::Refused, counts.refusals),
            (ClusterEvent::CameAhead, counts.ahead),
            (ClusterEvent::WouldBlock, counts.would_block),
            (ClusterEvent::CalledBack, counts.callbacks),
            (ClusterEvent::Fell, counts.falls),
            (ClusterEvent::CameAlone, counts.records),
            (ClusterEvent::CameOfSet, counts.set_records),
            (ClusterEvent::CameInOrder, counts.set_portions),
            (ClusterEvent::Returned, counts.returned),
            (ClusterEvent::Redone, counts.redone),
        ] {
            coverage.event_times(event, count);
        }
    }

    /// Nothing goes wrong from here on, and all machines run.
    fn mend(&mut self) {
        self.due.clear();
        self.machines.network.heal();
        self.machines.set_full(false);
        let now = self.cluster.now();
        (0..=self.course.shape.nodes).for_each(|machine| self.cluster.pause(machine as usize, now));
        if self.server_runs && (self.log_is_to_fail || self.disk_is_to_fail || self.opening_has_failed.get()) {
            self.end_server(ClusterFault::Kill);
        }
        self.course.expect_commits(self.cluster.now());
        (1..=self.course.shape.nodes).for_each(|node| self.start_node(node));
        self.start_server();
        self.rights.borrow_mut().values_mut().for_each(|rights| *rights = Rights::all());
        self.tell_rights();
    }

    /// Every node commits again.
    fn await_commits(&mut self) -> Played {
        let end = self.cluster.now().plus_ns(MENDED_MAX_NS);
        let nodes = 1..=self.course.shape.nodes;
        let mut late: Vec<u32> = nodes.collect();
        while self.cluster.now() < end && self.course.wrong.borrow().is_empty() {
            self.cluster.run_until(self.cluster.now().plus_ns(MENDED_LOOK_NS))?;
            late.retain(|node| self.course.done(*node) < MENDED_DONE);
            if late.is_empty() {
                return self.cluster.run_until(self.cluster.now().plus_ns(MENDED_REST_NS));
            }
        }
        for node in late.iter().filter(|_| self.cluster.now() >= end) {
            let (seconds, step) = (MENDED_MAX_NS / SECOND_NS, self.course.step(*node).map(ClusterStep::name));
            let words = step.unwrap_or("does not run");
            self.course
                .wrong(format!("node {node} does not commit within {seconds} s after all is mended: it {words}"));
        }
        Ok(())
    }

    /// All transactions end, and the server's directory is sound.
    fn finish(&mut self) -> Played {
        self.course.over.set(true);
        let end = self.cluster.now().plus_ns(MENDED_MAX_NS);
        while self.programs.values().any(|program| !program.is_finished()) && self.cluster.now() < end {
            self.cluster.run_until(self.cluster.now().plus_ns(MENDED_LOOK_NS))?;
        }
        for (node, program) in &self.programs {
            if !program.is_finished() {
                let step = self.course.step(*node).map_or("does not run", ClusterStep::name);
                self.course.wrong(format!("node {node} never ends: it {step}"));
            }
        }
        self.cluster.run_until(self.cluster.now().plus_ns(QUIET_NS))?;
        self.course.fold(self.cluster.now().ns());
        self.count();
        let server = self.server.borrow();
        let Some(server) = &*server else {
            self.course.wrong("the server does not run".to_owned());
            return Ok(());
        };
        if let Err(what) = server.protocol().check() {
            self.course.wrong(format!("the server's directory: {what}"));
        }
        Ok(())
    }

    /// All machines end; the server's loses its power.
    fn stop(&mut self) {
        self.end_machine(0, ClusterFault::PowerCut);
        drop((self.server.take(), self.database.take()));
        (1..=self.course.shape.nodes).for_each(|node| {
            self.executors[node as usize].stop();
            self.course.end(node);
        });
        self.machines.treat_media(&mut self.random, true);
    }
}
