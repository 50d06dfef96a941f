use crate::subject::{PAGE, Subject, read, write};
use base::Random;
use driver::{Access, FaultKind, Op, Output};

pub(crate) fn what_was_written_is_read(mut subject: Subject) {
    let file = subject.create("data", 8 * PAGE as u64);
    for index in [3u8, 0, 7] {
        let frame = subject.frame(PAGE, index + 1);
        let (output, frame) = subject.succeed(write(file, u64::from(index) * PAGE as u64, frame, false));
        assert_eq!(output, Output::Done);
        let frame = frame.expect("a write gives its buffer back");
        assert!(frame.iter().all(|byte| *byte == index + 1), "a write leaves its buffer alone");
    }
    let all = subject.bytes(file, 0, 8 * PAGE);
    for (index, page) in all.chunks(PAGE).enumerate() {
        let expected = if [3, 0, 7].contains(&index) { index as u8 + 1 } else { 0 };
        assert!(page.iter().all(|byte| *byte == expected), "page {index}");
    }
    let (other, _) = subject.open("other");
    assert_ne!(other, file);
    let frame = subject.frame(PAGE, 0);
    assert_eq!(subject.fail(read(other, 0, frame)).0.kind, FaultKind::EndOfFile, "files are separate");
}

pub(crate) fn reads_beyond_the_end_are_faults(mut subject: Subject) {
    let file = subject.create("short", 2 * PAGE as u64);
    for (offset, length) in [(PAGE, 2 * PAGE), (2 * PAGE, PAGE), (100 * PAGE, PAGE)] {
        let frame = subject.frame(length, 0);
        let (fault, buffer) = subject.fail(read(file, offset as u64, frame));
        assert_eq!(fault.kind, FaultKind::EndOfFile, "{fault}");
        assert!(fault.message.contains("short"), "{fault}");
        assert_eq!(buffer.map(|buffer| buffer.len()), Some(length), "the buffer comes back");
    }
    assert_eq!(subject.bytes(file, PAGE as u64, PAGE).len(), PAGE, "the last page is inside");
}

pub(crate) fn durable_writes_and_syncs_complete(mut subject: Subject) {
    let file = subject.create("log", 16 * PAGE as u64);
    for index in 0..16 {
        let frame = subject.frame(PAGE, index as u8);
        subject.succeed(write(file, index * PAGE as u64, frame, index % 2 == 0));
    }
    let (output, buffer) = subject.succeed(Op::Sync { file });
    assert_eq!(output, Output::Done);
    assert!(buffer.is_none());
    for index in 0..16 {
        assert!(subject.bytes(file, index * PAGE as u64, PAGE).iter().all(|byte| *byte == index as u8));
    }
}

pub(crate) fn synchronous_accesses_transfer_too(mut subject: Subject) {
    let file = subject.create("nvem", 4 * PAGE as u64);
    let access = Access::Synchronous { instructions: 300 };
    let buffer = subject.frame(PAGE, 0x33);
    let length = PAGE as u32;
    subject.succeed(Op::Write { file, offset: PAGE as u64, length, buffer, durable: true, access });
    let buffer = subject.frame(PAGE, 0);
    let (_, buffer) = subject.succeed(Op::Read { file, offset: PAGE as u64, length, buffer, access });
    assert!(buffer.expect("the buffer comes back").iter().all(|byte| *byte == 0x33));
    let buffer = subject.frame(PAGE, 0);
    let (fault, _) = subject.fail(Op::Read { file, offset: 4 * PAGE as u64, length, buffer, access });
    assert_eq!(fault.kind, FaultKind::EndOfFile);
}

/// Rounds of random reads and writes, never two that overlap in a round, against an array of bytes.
pub(crate) fn random_transfers_agree_with_a_model(mut subject: Subject) {
    const PAGES: usize = 128;
    let mut random = Random::stream(7, "conformance transfers");
    let file = subject.create("model", (PAGES * PAGE) as u64);
    let mut model = vec![0u8; PAGES * PAGE];
    let mut pool = subject.driver.frames(PAGES, 2 * PAGE).expect("memory");
    for _ in 0..30 {
        let mut submitted = Vec::new();
        let mut page = 0;
        while page + 2 < PAGES {
            let pages = random.between(1, 2) as usize;
            let span = page * PAGE..(page + pages) * PAGE;
            page = span.end / PAGE + random.below(8) as usize;
            let mut buffer = pool.pop().expect("fewer than there are pages");
            let (offset, length) = (span.start as u64, span.len() as u32);
            let op = if random.chance(0.5) {
                random.fill(&mut buffer[..span.len()]);
                model[span.clone()].copy_from_slice(&buffer[..span.len()]);
                let durable = random.chance(0.2);
                Op::Write { file, offset, length, buffer, durable, access: Access::Asynchronous }
            } else {
                Op::Read { file, offset, length, buffer, access: Access::Asynchronous }
            };
            submitted.push((subject.submit(op), span));
        }
        let tokens: Vec<_> = submitted.iter().map(|(token, _)| *token).collect();
        for (completion, (_, span)) in subject.await_all(&tokens).into_iter().zip(submitted) {
            assert_eq!(completion.result, Ok(Output::Done));
            let buffer = completion.buffer.expect("the buffer comes back");
            assert!(buffer[..span.len()] == model[span.clone()], "bytes {span:?} differ from the model");
            pool.push(buffer);
        }
    }
    assert!(subject.bytes(file, 0, PAGES * PAGE) == model);
}

pub(crate) fn large_and_empty_transfers_are_whole(mut subject: Subject) {
    const LARGE: usize = 5 << 20;
    let file = subject.create("large", LARGE as u64);
    let mut frame = subject.frame(LARGE, 0);
    Random::stream(3, "conformance large").fill(&mut frame);
    let expected = frame.to_vec();
    subject.succeed(write(file, 0, frame, true));
    assert!(subject.bytes(file, 0, LARGE) == expected);
    let buffer = subject.frame(PAGE, 9);
    let (output, buffer) =
        subject.succeed(Op::Read { file, offset: 0, length: 0, buffer, access: Access::Asynchronous });
    assert_eq!(output, Output::Done);
    assert!(buffer.expect("the buffer comes back").iter().all(|byte| *byte == 9), "nothing was read");
}
