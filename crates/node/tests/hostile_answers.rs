//! A client whose server says anything at all that can be understood.

use crate::hostile::{Ground, Line, PAGE, admit, join_with, sound};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, PartitionId, Random};
use driver::FaultKind;
use engine::Error;
use engine::catalog::Organization;
use entresol_node::lease::LEASE_NS;
use entresol_node::message::{
    Answer, ClientId, Copy, Described, LeavingFate, RecordLock, Request, Secret, SetAnswer, SetFound, SetRecord,
    SetValue, SnapshotAnswer, Transaction,
};
use entresol_node::page_client::PageClient;
use executor::Executor;

const FRAMES: usize = 80;
/// A set that the client is told of.
const SET: PartitionId = PartitionId(1);

fn described() -> Vec<Described> {
    let direct = Organization::Direct { objects: 1000, blocking_factor: 12, record_size: 8 };
    let of = |id: PartitionId, name: &str, organization| Described {
        id: id.0,
        name: name.to_owned(),
        organization,
        schema: None,
        index_of: None,
    };
    vec![of(PAGE.partition, "table", direct), of(SET, "set", Organization::set(false))]
}

/// What the server says, which knows what the client has asked for.
struct Liar {
    random: Random,
    asked: Vec<Copy>,
}

impl Liar {
    fn note(&mut self, said: &Request) {
        if let Request::Read { copy, .. } | Request::Accept { copy, .. } | Request::Write { copy, .. } = said {
            self.asked.push(*copy);
        }
    }

    fn page(&mut self) -> PageId {
        PageId::new(PAGE.partition, self.random.below(6) as u32)
    }

    fn copy(&mut self) -> Copy {
        let latest = self.asked.len().saturating_sub(12);
        match &self.asked[latest..] {
            [] => Copy { page: PAGE, number: 0 },
            asked if self.random.chance(0.8) => asked[self.random.below(asked.len() as u64) as usize],
            _ => Copy { page: self.page(), number: self.random.below(40) },
        }
    }

    fn transaction(&mut self) -> Transaction {
        Transaction(self.random.below(60))
    }

    fn lock(&mut self) -> (PageId, RecordLock) {
        let (slot, transaction, writes) = (self.random.below(12) as u16, self.transaction(), self.random.chance(0.5));
        (self.page(), RecordLock { slot, transaction, writes })
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.random.below(20)).map(|_| self.random.below(256) as u8).collect()
    }

    fn fate(&mut self) -> LeavingFate {
        [LeavingFate::Dropped, LeavingFate::Returned, LeavingFate::Offered][self.random.below(3) as usize]
    }

    fn of_set(&mut self) -> SetAnswer {
        match self.random.below(7) {
            0 => SetAnswer::Granted,
            1 => SetAnswer::AskAgain,
            2 => {
                let found = SetFound { of: self.bytes(), key: self.bytes(), value: Some(SetValue(self.bytes())) };
                let (is_last, next) = (self.random.chance(0.5), self.random.chance(0.5).then_some(7));
                SetAnswer::Records { records: vec![found; self.random.below(3) as usize], is_last, next }
            }
            3 => SetAnswer::Number(self.random.word()),
            4 => SetAnswer::Value(Some(SetValue(self.bytes()))),
            5 => SetAnswer::TooOld { oldest: self.random.word() },
            _ => SetAnswer::Failed { is_denied: self.random.chance(0.5), reason: "no".to_owned() },
        }
    }

    fn of_snapshot(&mut self) -> SnapshotAnswer {
        let page = self.page();
        match self.random.below(6) {
            0 => SnapshotAnswer::Begun { moment: self.random.word() },
            1 => SnapshotAnswer::Page { page, bytes: sound(page) },
            2 => SnapshotAnswer::Failed { page, is_denied: self.random.chance(0.5), reason: "no".to_owned() },
            3 => SnapshotAnswer::TooOld { oldest: self.random.word() },
            4 => SnapshotAnswer::Set { question: self.random.below(4), said: self.of_set() },
            _ => SnapshotAnswer::Undecided { reason: "no".to_owned() },
        }
    }

    fn of_record(&mut self) -> Answer {
        let ((page, lock), reason, is_denied) = (self.lock(), "no".to_owned(), self.random.chance(0.5));
        let (partition, key, transaction) = (SET.0, self.bytes(), lock.transaction);
        let record = SetRecord { partition, key, transaction, writes: lock.writes };
        match self.random.below(6) {
            0 => Answer::Record { page, lock, is_alone: is_denied, bytes: self.bytes() },
            1 => Answer::NoLeaf { page, lock },
            2 => Answer::NoRecord { page, lock, is_denied, reason },
            3 => Answer::SetRecord { record, value: Some(SetValue(self.bytes())) },
            4 => Answer::SetGranted { page, lock },
            _ => Answer::NoSetRecord { record, is_denied, reason },
        }
    }

    fn answer(&mut self) -> Answer {
        let (copy, reason) = (self.copy(), "no".to_owned());
        match self.random.below(24) {
            0..5 => Answer::Page { copy, bytes: sound(copy.page), fate: self.fate() },
            5 => Answer::Page { copy, bytes: self.bytes(), fate: self.fate() },
            6 => Answer::Failed { copy, is_denied: self.random.chance(0.5), is_full: self.random.chance(0.5), reason },
            7 => Answer::Denied { transaction: self.transaction(), reason },
            8 | 9 => Answer::Granted { copy, transaction: self.transaction() },
            10 => Answer::CallBack { copy },
            11 => Answer::Fall { copy },
            12 => Answer::ByRecords { copy },
            13 | 14 => self.of_record(),
            15 => Answer::Set { transaction: self.transaction(), number: self.random.below(4), said: self.of_set() },
            16 if self.random.chance(0.5) => Answer::WouldBlock { copy },
            16 => Answer::Withdrawn { copy },
            17 => Answer::Offer { page: copy.page },
            18 => Answer::LastCopy { copy },
            19 => {
                let (address, fate) = ("10.0.0.9:1".parse().expect("an address"), self.fate());
                let (wanted, to, secret) = (self.random.below(9), ClientId(7), Secret(3));
                Answer::Forward { copy, wanted, to, address, name: None, secret, fate }
            }
            20 => Answer::AskAgain { copies: vec![copy, self.copy()] },
            21 => Answer::Victim { transaction: self.transaction(), withdrawn: vec![copy] },
            22 if self.random.chance(0.5) => Answer::Committed { transaction: self.transaction() },
            22 => Answer::NotCommitted { transaction: self.transaction(), reason },
            _ if self.random.chance(0.8) => Answer::Snapshot { number: self.random.below(9), said: self.of_snapshot() },
            _ => Answer::Catalog { partitions: described() },
        }
    }
}

/// Reads and writes pages, records and sets, as far as it gets.
async fn work(client: PageClient, executor: Executor, seed: u64) {
    let mut random = Random::stream(seed, "work");
    loop {
        let number = random.below(72);
        let tried = async {
            let mut tx = client.begin().await;
            match random.below(5) {
                0 => tx.read_object(PAGE.partition, number, <[u8]>::len).await.map(drop)?,
                1 => tx.modify_object(PAGE.partition, number, |object| object[0] = 1).await.map(drop)?,
                2 => tx.get(SET, &[number as u8]).await.map(drop)?,
                3 => tx.put(SET, &[number as u8], b"value").await.map(drop)?,
                _ => {
                    let mut snapshot = client.snapshot().await?;
                    snapshot.get(SET, &[number as u8]).await?;
                }
            }
            tx.commit().await
        };
        let _done: Option<Result<(), Error>> = executor.within(500 * MILLISECOND_NS, tried).await;
        executor.sleep_ns(MILLISECOND_NS).await;
    }
}

/// Answers as a server does that has one page.
async fn answer_honestly(line: &mut Line) {
    while let Some(said) = line.hear().await {
        match said {
            Request::Catalog => line.say(&Answer::Catalog { partitions: described() }).await,
            Request::Read { copy, .. } => {
                line.say(&Answer::Page { copy, bytes: sound(copy.page), fate: LeavingFate::Dropped }).await;
            }
            _ => {}
        }
    }
}

#[test]
fn whatever_a_server_says_its_client_goes_on_with_the_next_one() {
    for seed in 0..24 {
        let mut ground = Ground::new();
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            let mut liar = Liar { random: Random::stream(seed, "answers"), asked: Vec::new() };
            for _ in 0..600 {
                if let Some(Some(said)) = executor.within(MILLISECOND_NS, line.hear()).await {
                    if said == Request::Catalog {
                        line.say(&Answer::Catalog { partitions: described() }).await;
                    }
                    liar.note(&said);
                }
                line.say(&liar.answer()).await;
            }
            drop(line);
            for client in 1.. {
                answer_honestly(&mut admit(&*acceptor, &executor, client, false, LEASE_NS).await).await;
            }
        });
        let found = ground.run(async move |executor, at, own| {
            let client = join_with(FRAMES, &executor, at, own).await?;
            let working = [0, 1, 2].map(|n| executor.spawn(work(client.clone(), executor.clone(), 3 * seed + n)));
            executor.sleep_ns(8 * SECOND_NS).await;
            loop {
                let mut tx = client.begin().await;
                match executor.within(5 * SECOND_NS, tx.read(PAGE, <[u8]>::len)).await {
                    Some(Err(Error::Input(fault))) if fault.kind == FaultKind::Denied => return Err(fault.into()),
                    Some(Err(_)) | None => executor.sleep_ns(100 * MILLISECOND_NS).await,
                    Some(Ok((bytes, _))) => {
                        drop(working);
                        return Ok(bytes);
                    }
                }
            }
        });
        assert_eq!(found, Ok::<_, Error>(sound(PAGE).len()), "{seed}");
    }
}
