use crate::subject::{PAGE, Subject, read, write};
use driver::{FaultKind, Op, Output};

pub(crate) fn files_are_created_listed_and_removed(mut subject: Subject) {
    let device = subject.device();
    assert!(subject.names().is_empty(), "the device is empty at first");
    let (first, length) = subject.open("b.2");
    assert_eq!(length, 0);
    let (second, _) = subject.open("a.1");
    subject.open("c.3");
    assert_ne!(first, second);
    assert_eq!(subject.names(), ["a.1", "b.2", "c.3"]);
    subject.succeed(Op::Resize { file: first, length: 3 * PAGE as u64, prewrite: true });
    let (_, length) = subject.open("b.2");
    assert_eq!(length, 3 * PAGE as u64);
    for _ in 0..2 {
        let (output, _) = subject.succeed(Op::Remove { device, name: "b.2".to_owned() });
        assert_eq!(output, Output::Done);
    }
    assert_eq!(subject.names(), ["a.1", "c.3"]);
    let (_, length) = subject.open("b.2");
    assert_eq!(length, 0, "a new file of an old name is empty");
}

pub(crate) fn a_missing_file_is_a_fault_that_names_it(mut subject: Subject) {
    let device = subject.device();
    let (fault, buffer) = subject.fail(Op::Open { device, name: "absent.17".to_owned(), create: false });
    assert_eq!(fault.kind, FaultKind::NotFound);
    assert!(fault.message.contains("absent.17"), "{fault}");
    assert!(buffer.is_none());
    assert!(subject.names().is_empty());
}

pub(crate) fn growth_reads_as_zeros(mut subject: Subject) {
    let page = PAGE as u64;
    let file = subject.create("grown", 2 * page);
    assert!(subject.bytes(file, 0, 2 * PAGE).iter().all(|byte| *byte == 0));
    let frame = subject.frame(PAGE, 0x5A);
    subject.succeed(write(file, page, frame, false));
    subject.succeed(Op::Resize { file, length: 600 * page, prewrite: true });
    assert!(subject.bytes(file, page, PAGE).iter().all(|byte| *byte == 0x5A), "growth keeps what is there");
    assert!(subject.bytes(file, 2 * page, 598 * PAGE).iter().all(|byte| *byte == 0));
}

pub(crate) fn a_shrunk_file_has_forgotten_its_tail(mut subject: Subject) {
    let page = PAGE as u64;
    let file = subject.create("shrunk", 4 * page);
    let frame = subject.frame(4 * PAGE, 0x77);
    subject.succeed(write(file, 0, frame, true));
    subject.succeed(Op::Resize { file, length: page, prewrite: true });
    let frame = subject.frame(PAGE, 0);
    let (fault, _) = subject.fail(read(file, page, frame));
    assert_eq!(fault.kind, FaultKind::EndOfFile);
    subject.succeed(Op::Resize { file, length: 3 * page, prewrite: true });
    assert!(subject.bytes(file, 0, PAGE).iter().all(|byte| *byte == 0x77));
    assert!(subject.bytes(file, page, 2 * PAGE).iter().all(|byte| *byte == 0));
}

pub(crate) fn a_file_removed_under_way_ends_every_operation(mut subject: Subject) {
    let device = subject.device();
    let file = subject.create("doomed", 64 * PAGE as u64);
    let frames = subject.driver.frames(64, PAGE).expect("memory");
    let mut tokens = Vec::new();
    for (index, frame) in frames.into_iter().enumerate() {
        tokens.push(subject.submit(write(file, (index * PAGE) as u64, frame, false)));
    }
    tokens.push(subject.submit(Op::Remove { device, name: "doomed".to_owned() }));
    let completions = subject.await_all(&tokens);
    assert_eq!(completions.last().map(|completion| completion.result.clone()), Some(Ok(Output::Done)));
    assert!(completions[..64].iter().all(|completion| completion.buffer.is_some()));
    assert!(subject.names().is_empty());
}
