use super::*;
use base::PartitionId;
use proptest::prelude::*;

fn copy(number: u64) -> Copy {
    Copy { page: PageId::new(PartitionId(3), 77), number }
}

fn requests() -> Vec<Request> {
    let (transaction, bytes) = (Transaction(9), vec![7; 300]);
    let leaving = Some(Leaving { copy: copy(0), unused_ns: 1 << 40, was_used: true });
    vec![
        Request::Hello { page_size: 4096, address: "10.0.0.2:7000".parse().expect("an address"), former: None },
        Request::Hello {
            page_size: 4096,
            address: "[::1]:7000".parse().expect("an address"),
            former: Some(Former {
                session: Session { epoch: 1 << 40, client: ClientId(3) },
                secret: Secret(u128::MAX),
                copies: vec![copy(8)],
            }),
        },
        Request::Survey { page: Some(("account".to_owned(), 7)) },
        Request::Renew { sent: 77 },
        Request::Leave,
        Request::Read { copy: copy(1), secret: Secret(5), transaction, writes: true, leaving, waited: None },
        Request::Accept { copy: copy(1), secret: Secret(6), leaving },
        Request::Decline { page: copy(1).page },
        Request::Read {
            copy: copy(1),
            secret: Secret(5),
            transaction,
            writes: false,
            leaving: None,
            waited: Some(Wait { copy: copy(0), waited_ns: 1 << 40 }),
        },
        Request::Write { copy: copy(1), transaction },
        Request::InUse { copy: copy(1), by: vec![transaction] },
        Request::CalledBack { copy: copy(1) },
        Request::Fell { copy: copy(1), locks: vec![RecordLock { slot: 3, transaction, writes: true }] },
        Request::Record { page: copy(1).page, lock: RecordLock { slot: u16::MAX, transaction, writes: false } },
        Request::SetRecord(SetRecord { partition: 7, key: vec![1; 9], transaction, writes: true }),
        Request::Set(SetQuestion {
            transaction,
            number: 1 << 40,
            partition: 7,
            ask: SetAsk::Entries(vec![SetEntry { index: 3, of: bytes.clone() }]),
        }),
        Request::Set(SetQuestion {
            transaction,
            number: 2,
            partition: 7,
            ask: SetAsk::Range(SetRange {
                index: 0,
                from: vec![1],
                to: Some(SetValue(vec![2; 3])),
                behind: Some((SetValue(vec![1; 2]), SetValue(Vec::new()))),
            }),
        }),
        Request::Set(SetQuestion { transaction, number: 3, partition: 7, ask: SetAsk::Scan(u64::MAX) }),
        Request::Set(SetQuestion { transaction, number: 4, partition: 7, ask: SetAsk::Arrival }),
        Request::Waits { pairs: vec![WaitsFor { transaction, other: Transaction(10) }] },
        Request::Refused { wanted: copy(5), to: ClientId(4) },
        Request::Commit {
            transaction,
            others: vec![Transaction(10)],
            keeps: true,
            records: vec![1, 2],
            pages: vec![Image { page: copy(1).page, bytes: bytes.clone() }],
            redone: vec![copy(2).page, PageId::new(PartitionId(4), 0)],
            sets: vec![
                SetWrite { partition: 7, key: vec![1; 9], value: Some(SetValue(bytes.clone())) },
                SetWrite { partition: 8, key: Vec::new(), value: None },
            ],
        },
        Request::Abort { transaction },
        Request::Returned { copy: copy(1), bytes },
        Request::Snapshot { number: 1 << 40, request: SnapshotRequest::Begin },
        Request::Snapshot { number: 3, request: SnapshotRequest::Read { page: copy(1).page } },
        Request::Snapshot { number: 3, request: SnapshotRequest::End },
        Request::Snapshot {
            number: 3,
            request: SnapshotRequest::Set { question: 8, partition: 7, ask: PastAsk::Record(vec![4; 40]) },
        },
    ]
}

#[test]
fn messages_survive_encoding_and_refuse_truncation() {
    for body in requests() {
        let message = ToServer { drops: vec![copy(2), copy(3)], body };
        let mut frame = Vec::new();
        encode(&message, 0, &mut frame);
        assert_eq!(frame_size(&frame, SIZE_MAX), Ok(Some(frame.len())));
        assert_eq!(decode::<ToServer>(&frame), Ok(message));
        for end in 0..frame.len() {
            assert!(decode::<ToServer>(&frame[..end]).is_err(), "{end} of {}", frame.len());
        }
    }
}

#[test]
fn a_frame_is_as_long_as_is_described_and_says_the_same() {
    let message = ToServer { drops: Vec::new(), body: Request::CalledBack { copy: copy(1) } };
    let mut frames = Vec::new();
    encode(&message, 256, &mut frames);
    encode(&message, 256, &mut frames);
    assert_eq!(frames.len(), 512);
    assert_eq!(frame_size(&frames, SIZE_MAX), Ok(Some(256)));
    assert_eq!(decode(&frames[256..]), Ok(message.clone()));
    frames[255] = 1;
    assert!(decode::<ToServer>(&frames[..256]).is_err(), "what stands behind a message is not ignored");
}

#[test]
fn other_versions_and_lengths_beyond_the_limit_are_named() {
    assert_eq!(frame_size(&[1, 0, 0], SIZE_MAX), Ok(None));
    assert_eq!(frame_size(&[1, 0, 0, 0, VERSION + 1], SIZE_MAX), Err(MessageError::Version(VERSION + 1)));
    let (length, limit) = (255 << 24, SIZE_MAX);
    assert_eq!(frame_size(&[0, 0, 0, 255, VERSION], limit), Err(MessageError::TooLong { length, limit }));
    let drops = vec![copy(1); LIST_MAX + 1];
    let mut frame = Vec::new();
    encode(&ToServer { drops, body: Request::Abort { transaction: Transaction(1) } }, 0, &mut frame);
    let refused = decode::<ToServer>(&frame).expect_err("too long");
    assert!(refused.to_string().contains("limit of 65536"), "{refused}");
}

/// A message that begins with a list with this number of elements, none of which is one.
fn claims(length: usize) -> Vec<u8> {
    let mut frame = postcard::to_extend(&length, vec![0; HEAD_SIZE]).expect("memory takes any number");
    frame.resize(frame.len() + length, 0xff);
    frame
}

#[test]
fn a_list_that_is_too_long_is_refused_before_it_is_read() {
    let within = decode::<ToServer>(&claims(LIST_MAX)).expect_err("it has no elements").to_string();
    assert!(!within.contains("limit"), "{within}");
    for length in [LIST_MAX + 1, 30 << 20] {
        let refused = decode::<ToServer>(&claims(length)).expect_err("it is too long").to_string();
        assert!(refused.contains("limit of 65536"), "{length}: {refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = frame_size(&bytes, SIZE_MAX);
        let _ = decode::<ToServer>(&bytes);
        let _ = decode::<Answer>(&bytes);
        let _ = decode::<ToPeer>(&bytes);
    }

    #[test]
    fn a_changed_byte_does_no_harm(which in 0..requests().len(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = Vec::new();
        encode(&ToServer { drops: vec![copy(8)], body: requests().swap_remove(which) }, 0, &mut frame);
        let at = at.index(frame.len());
        frame[at] = byte;
        if let Ok(Some(_)) = frame_size(&frame, SIZE_MAX) {
            let _ = decode::<ToServer>(&frame);
        }
    }
}

#[test]
fn what_is_said_of_sets_survives_and_lists_of_it_are_bounded() {
    let found = SetFound { of: vec![1, 2], key: vec![3; 9], value: Some(SetValue(vec![7; 300])) };
    let said = [
        SetAnswer::Granted,
        SetAnswer::AskAgain,
        SetAnswer::Records {
            records: vec![found.clone(), SetFound { value: None, ..found.clone() }],
            is_last: false,
            next: Some(1 << 40),
        },
        SetAnswer::Number(u64::MAX),
        SetAnswer::Value(None),
        SetAnswer::TooOld { oldest: 5 },
        SetAnswer::Failed { is_denied: true, reason: "why".to_owned() },
    ];
    for said in said {
        let message = Answer::Set { transaction: Transaction(4), number: 9, said };
        let mut frame = Vec::new();
        encode(&message, 0, &mut frame);
        assert_eq!(decode::<Answer>(&frame), Ok(message));
        (0..frame.len()).for_each(|end| assert!(decode::<Answer>(&frame[..end]).is_err(), "{end}"));
    }
    let many = SetAsk::Entries(vec![SetEntry { index: 0, of: Vec::new() }; LIST_MAX + 1]);
    let question = SetQuestion { transaction: Transaction(4), number: 1, partition: 7, ask: many };
    let mut frame = Vec::new();
    encode(&ToServer { drops: Vec::new(), body: Request::Set(question) }, 0, &mut frame);
    assert!(matches!(decode::<ToServer>(&frame), Err(MessageError::Malformed(_))));
}
