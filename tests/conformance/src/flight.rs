use crate::subject::{PAGE, Subject, read, write};
use driver::{Class, FaultKind, Op, Output};
use std::sync::{Arc, Mutex, mpsc};

pub(crate) fn many_operations_complete_once_each(mut subject: Subject) {
    const COUNT: usize = 6_000;
    let file = subject.create("many", 256 * PAGE as u64);
    let frames = subject.driver.frames(COUNT, PAGE).expect("memory");
    let mut tokens = Vec::with_capacity(COUNT);
    for (index, frame) in frames.into_iter().enumerate() {
        tokens.push(subject.submit(read(file, (index % 256 * PAGE) as u64, frame)));
    }
    let mut ended = vec![0u32; tokens.len()];
    let mut done = Vec::new();
    let first = tokens[0].0;
    for _ in 0..COUNT {
        if done.len() == COUNT {
            break;
        }
        subject.driver.park(None, &mut done).expect("the machine does not stop");
    }
    for completion in &done {
        assert_eq!(completion.result, Ok(Output::Done));
        assert_eq!(completion.buffer.as_ref().map(|buffer| buffer.len()), Some(PAGE));
        ended[(completion.token.0 - first) as usize] += 1;
    }
    assert!(ended.iter().all(|times| *times == 1));
    let now = subject.driver.now();
    done.clear();
    subject.driver.park(Some(now.plus_ns(1_000_000)), &mut done).expect("the machine does not stop");
    assert!(done.is_empty(), "nothing completes twice");
}

pub(crate) fn cancelled_operations_complete_once(mut subject: Subject) {
    const COUNT: usize = 400;
    let file = subject.create("given-up", COUNT as u64 * PAGE as u64);
    let frames = subject.driver.frames(COUNT, PAGE).expect("memory");
    let mut tokens = Vec::new();
    for (index, frame) in frames.into_iter().enumerate() {
        let offset = (index * PAGE) as u64;
        let op = if index % 2 == 0 { read(file, offset, frame) } else { write(file, offset, frame, true) };
        tokens.push(subject.submit(op));
        if index % 8 == 0 {
            subject.driver.cancel(tokens[index / 2]);
        }
    }
    for token in tokens.iter().step_by(3) {
        subject.driver.cancel(*token);
    }
    for completion in subject.await_all(&tokens) {
        assert!(completion.buffer.is_some(), "the buffer comes back");
        match completion.result {
            Ok(output) => assert_eq!(output, Output::Done),
            Err(fault) => assert_eq!(fault.kind, FaultKind::Cancelled, "{fault}"),
        }
    }
    // Giving up what has ended does nothing, and the driver goes on.
    subject.driver.cancel(tokens[0]);
    let frame = subject.frame(PAGE, 1);
    subject.succeed(write(file, 0, frame, false));
}

pub(crate) fn computations_deliver_their_results(mut subject: Subject) {
    let sums = Arc::new(Mutex::new(Vec::new()));
    let tokens: Vec<_> = (0..50u64)
        .map(|seed| {
            let sums = Arc::clone(&sums);
            let run = move || sums.lock().expect("no panic").push((seed, (0..=seed).sum::<u64>()));
            subject.submit(Op::Compute { run: Box::new(run), instructions: 1_000 })
        })
        .collect();
    for completion in subject.await_all(&tokens) {
        assert_eq!(completion.result, Ok(Output::Done));
    }
    let mut sums = std::mem::take(&mut *sums.lock().expect("no panic"));
    sums.sort_unstable();
    assert_eq!(sums, (0..50).map(|seed| (seed, seed * (seed + 1) / 2)).collect::<Vec<_>>());
}

pub(crate) fn instructions_complete_in_a_later_park(mut subject: Subject) {
    let tokens: Vec<_> = [Class::User, Class::System]
        .into_iter()
        .map(|class| subject.submit(Op::Cpu { instructions: 10_000, class }))
        .collect();
    for completion in subject.await_all(&tokens) {
        assert_eq!(completion.result, Ok(Output::Done));
        assert!(completion.buffer.is_none());
    }
}

/// The buffers of operations under way must not be freed before the device lets go of them.
pub(crate) fn a_dropped_driver_is_sound(mut subject: Subject) {
    let file = subject.create("abandoned", 256 * PAGE as u64);
    let frames = subject.driver.frames(256, PAGE).expect("memory");
    for (index, frame) in frames.into_iter().enumerate() {
        let offset = (index * PAGE) as u64;
        subject.submit(if index % 2 == 0 { read(file, offset, frame) } else { write(file, offset, frame, true) });
    }
    let (sender, done) = mpsc::channel::<()>();
    subject.submit(Op::Compute { run: Box::new(move || drop(sender)), instructions: 1 });
    let now = subject.driver.now();
    subject.driver.park(Some(now), &mut Vec::new()).expect("the machine does not stop");
    drop(subject);
    assert_eq!(done.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the computation ran or was dropped");
}
