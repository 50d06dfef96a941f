#![allow(clippy::disallowed_methods, reason = "the threads that wait are what is tested")]

use super::*;
use canary::plant;
use std::sync::mpsc;
use std::thread;

type Queue = Vec<Arc<dyn Sleeper>>;

/// Slots with an answer each, of threads that sleep; this thread stands for all of them.
fn asleep(count: usize) -> (Vec<Arc<Slot<usize>>>, Queue) {
    let slots: Vec<_> = (0..count).map(|_| Slot::new()).collect();
    let mut queue: Queue = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        assert!(slot.take(|| Some(Waiter::Thread(thread::current()))).is_none());
        assert!(slot.fill(number), "its thread sleeps");
        queue.push(Arc::clone(slot) as Arc<dyn Sleeper>);
    }
    (slots, queue)
}

fn is_woken(slot: &Slot<usize>) -> bool {
    matches!(*lock(&slot.state), State::Woken(_))
}

/// What a woken thread does, on a processor that is not the engine's.
fn leave(slot: &Slot<usize>, wakes: &Wakes) -> Option<usize> {
    leave_from(u32::MAX, slot, wakes)
}

fn leave_from(processor: u32, slot: &Slot<usize>, wakes: &Wakes) -> Option<usize> {
    let taken = slot.take(|| None).expect("its answer is there");
    if taken.was_woken {
        wakes.pass_on(processor);
    }
    taken.answer
}

/// Wakes threads one by one through each other; whether all were woken.
fn are_all_woken(count: usize, processors: usize) -> bool {
    let wakes = Wakes::among(processors);
    let (slots, mut queue) = asleep(count);
    wakes.begin(&mut queue);
    slots.iter().enumerate().all(|(number, slot)| is_woken(slot) && leave(slot, &wakes) == Some(number))
}

#[test]
fn a_woken_thread_wakes_the_next() {
    assert!((1..=4).all(|processors| are_all_woken(5, processors)));
    plant(Some(Canary::KeptWake));
    let are_all = are_all_woken(5, 2);
    plant(None);
    assert!(!are_all, "none wakes the second");
}

#[test]
fn where_there_are_processors_for_them_two_are_woken_at_a_time() {
    for (processors, awake) in [(1, 1), (2, 1), (3, 2), (64, 2)] {
        let wakes = Wakes::among(processors);
        let (slots, mut queue) = asleep(5);
        wakes.begin(&mut queue);
        leave(&slots[0], &wakes);
        assert_eq!(slots.iter().filter(|slot| is_woken(slot)).count(), awake, "on {processors} processors");
    }
}

/// The first leaves because its time is over, before it is woken; whether the second is woken.
fn is_next_woken() -> bool {
    let wakes = Wakes::among(2);
    let (slots, mut queue) = asleep(2);
    assert_eq!(leave(&slots[0], &wakes), Some(0));
    wakes.begin(&mut queue);
    is_woken(&slots[1])
}

#[test]
fn a_thread_that_has_left_is_passed_over() {
    assert!(is_next_woken());
    plant(Some(Canary::BlindWake));
    let is_woken = is_next_woken();
    plant(None);
    assert!(!is_woken, "the one that has left passes nothing on");
}

/// Tells where the threads of these slots sleep.
fn place(slots: &[Arc<Slot<usize>>], processors: &[u32]) {
    slots.iter().zip(processors).for_each(|(slot, processor)| slot.processor.store(*processor, Ordering::Relaxed));
}

/// The order in which they are woken, if the engine is on processor 0.
fn order(mut queue: Queue) -> Vec<u32> {
    let mut chain = Chain { asleep: queue.drain(..).collect(), ..Chain::default() };
    std::iter::from_fn(|| chain.next(0)).map(|sleeper| sleeper.processor()).collect()
}

#[test]
fn those_are_woken_first_that_do_not_sleep_on_the_engines_processor() {
    let (slots, queue) = asleep(6);
    place(&slots, &[0, 1, 0, 2, 1, 0]);
    assert_eq!(order(queue), [1, 2, 1, 0, 0, 0]);
    // But none is overtaken for ever.
    let (slots, queue) = asleep(3 * OVERTAKEN_MAX as usize);
    place(&slots, &[0]);
    place(&slots[1..], &[1].repeat(slots.len()));
    let order = order(queue);
    assert_eq!(order.iter().position(|processor| *processor == 0), Some(OVERTAKEN_MAX as usize));
    assert_eq!(order.len(), slots.len());
}

#[test]
fn on_the_engines_processor_a_thread_leaves_it_to_others_to_wake_the_next() {
    let wakes = Wakes::among(64);
    let (slots, mut queue) = asleep(6);
    wakes.begin(&mut queue);
    let engine = wakes.0.turns.engine();
    let awake = || slots.iter().filter(|slot| is_woken(slot)).count();
    leave(&slots[0], &wakes);
    assert_eq!(awake(), 2);
    leave_from(engine, &slots[1], &wakes);
    assert_eq!(awake(), 1, "the other one will");
    leave_from(engine, &slots[2], &wakes);
    assert_eq!(awake(), 2, "there was no other");
}

#[test]
fn no_turns_are_taken_on_more_processors_than_a_control_group_gives_time_for() {
    for (processors, allowed, is_busy) in [(2, 2, true), (2, 64, false), (1, 2, false), (1, 1, false)] {
        let wakes = Wakes::of(processors, allowed);
        wakes.note_gap(4_000);
        assert_eq!(wakes.0.turns.is_busy(), is_busy, "the time of {processors} on {allowed}");
    }
}

#[test]
fn the_engine_wakes_no_thread_while_others_do() {
    let wakes = Wakes::among(2);
    let (first, mut queue) = asleep(2);
    wakes.begin(&mut queue);
    leave(&first[0], &wakes);
    assert!(is_woken(&first[1]));
    // One has passed on, so others are at it.
    let (second, mut queue) = asleep(2);
    wakes.begin(&mut queue);
    assert!(!is_woken(&second[0]));
    // None has since: the one that should is kept from running.
    wakes.begin(&mut Vec::new());
    assert!(is_woken(&second[0]) && !is_woken(&second[1]));
    // Both go on in the end, and nothing is left.
    for slot in first[1..].iter().chain(&second) {
        leave(slot, &wakes);
    }
    let chain = lock(&wakes.0.chain);
    assert_eq!((chain.awake, chain.asleep.len()), (0, 0));
}

#[test]
fn answers_that_are_left_when_the_engine_ends_are_told_of() {
    let driver = virtual_driver::VirtualDriver::new(
        virtual_driver::Hardware::ideal(),
        virtual_driver::Options::default(),
        virtual_driver::Media::new(),
    );
    let executor = Executor::new(Box::new(driver), executor::Order::FirstInFirstOut);
    let wakes = Wakes::among(2);
    let answers = Answers::new(&executor, &wakes);
    let slot = Slot::new();
    assert!(slot.take(|| Some(Waiter::Thread(thread::current()))).is_none());
    answers.give(Promise::new(&slot), 7);
    assert!(!is_woken(&slot), "it is told of behind the others of its round");
    drop(answers);
    executor.stop();
    drop(executor);
    assert!(is_woken(&slot) && leave(&slot, &wakes) == Some(7));
}

/// Threads that ask again and again, of which some give up waiting for a while and every second one is woken without cause now and
/// then; an engine that answers some at a time.
#[test]
fn no_thread_sleeps_for_ever() {
    const THREADS: u64 = 12;
    let requests = if cfg!(miri) { 20 } else { 1_500 };
    let wakes = Wakes::new();
    let (sender, asked) = mpsc::channel::<Promise<u64>>();
    let engine = thread::spawn({
        let wakes = wakes.clone();
        move || {
            let mut number = 0;
            while let Ok(first) = asked.recv() {
                let mut answered: Queue = Vec::new();
                for mut promise in std::iter::once(first).chain(asked.try_iter()) {
                    number += 1;
                    let slot = promise.slot.take().expect("it is kept once");
                    if number % 97 == 0 {
                        slot.abandon();
                    } else if slot.fill(number) {
                        answered.push(slot);
                    }
                }
                wakes.begin(&mut answered);
            }
            number
        }
    });
    let clients: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (sender, wakes) = (sender.clone(), wakes.clone());
            thread::spawn(move || {
                for request in 0..requests {
                    let slot = Slot::new();
                    sender.send(Promise::new(&slot)).expect("the engine goes on");
                    let limit = Duration::from_micros((thread * 31 + request * 17) % 200);
                    let is_patient = request % 3 == 0;
                    if is_patient || slot.wait(&wakes, end_of(limit)).is_none() {
                        slot.wait(&wakes, None).expect("no time is over");
                    }
                }
            })
        })
        .collect();
    drop(sender);
    while !clients.iter().all(thread::JoinHandle::is_finished) {
        for client in clients.iter().step_by(2) {
            client.thread().unpark();
            thread::sleep(Duration::from_micros(300));
        }
    }
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    assert_eq!(engine.join().expect("no panic"), THREADS * requests);
    let chain = lock(&wakes.0.chain);
    // Those that left by themselves may still be there; none waits for them.
    assert_eq!(chain.awake, 0);
}
