use super::*;
use crate::ground::{on, settings};
use crate::{Length, Load, Plan, Unwatched, run};
use base::Random;
use devices::Hardware;
use driver::Driver;
use engine::{Error, PartitionSpec, Settings};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const SMALL: Scale = Scale { accounts: 2_000 };

fn spec(name: &str) -> Result<PartitionSpec> {
    Ok(PartitionSpec::set(name).record(record(name)))
}

#[test]
fn the_mix_is_the_papers_and_parameters_survive_their_bytes() {
    let mut random = Random::stream(1, "draw");
    let mut counts = [0_u64; 8];
    for _ in 0..100_000 {
        let drawn = Parameters::draw(SMALL, &mut random);
        counts[drawn.kind as usize] += 1;
        assert!(drawn.account < SMALL.accounts && drawn.store < SMALL.stores());
        let bytes = drawn.to_bytes();
        let read = Parameters::from_bytes(drawn.kind, &bytes).expect("its own bytes");
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(read.account, drawn.account);
        assert_eq!(Parameters::from_bytes(drawn.kind, &bytes[..bytes.len() - 1]), None);
        assert_eq!(Parameters::from_bytes(drawn.kind, &[&bytes[..], &[0]].concat()), None);
    }
    let largest = Parameters { kind: Kind::Debit, account: u64::MAX, store: u64::MAX - 1, amount: u32::MAX };
    assert_eq!(Parameters::from_bytes(Kind::Debit, &largest.to_bytes()), Some(largest));
    assert_eq!(Parameters::from_bytes(Kind::Balance, &[0xff; 10]), None, "more than 64 bits");
    for (kind, count) in Kind::ALL.into_iter().zip(counts) {
        let expected = kind.share_percent() as f64 * 1_000.0;
        assert!((count as f64 - expected).abs() < 5.0 * expected.sqrt(), "{}: {count}", kind.name());
    }
}

#[test]
fn money_adds_up_after_a_run() {
    on(Hardware::ideal(), 64, async |database| {
        load(&database, SMALL, spec, |_| {}).await?;
        let tables = Tables::of(database.catalog(), |set| database.set_records(set))?;
        assert_eq!(tables.scale(), SMALL);
        let plan = Plan {
            load: Load::Closed { clients: 8 },
            warm_up: Length::Transactions(100),
            measure: Length::Transactions(5_000),
            seed: 1,
        };
        let measured = run::run(&database, CreditCard(tables.clone()), &plan, &mut Unwatched, |found| found).await?;
        assert!(measured.types.iter().all(|one| one.response.count() > 0), "every type ran");
        let found = totals(&database, &tables).await?;
        assert!(found.agree() && found.sold > 0 && found.hot_cards > 0, "{found:?}");
        assert!(database.check(|_| {}).await?.is_clean());
        // A sale without a debtor is found.
        let sell = async |tx: &mut engine::Transaction| {
            tx.add_to_field(tables.store.partition, &0_u64.to_be_bytes(), tables.sold, 1).await
        };
        database.transaction(sell).await?;
        assert!(!totals(&database, &tables).await?.agree());
        Ok(())
    });
}

#[test]
fn every_type_answers_as_its_account_stands() {
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let work = async {
        let settings = Settings { procedures: procedures(), ..settings(64) };
        let database = Database::create(&executor, settings).await?;
        load(&database, SMALL, spec, |_| {}).await?;
        let call = async |kind: Kind, account, amount| {
            let parameters = Parameters { kind, account, store: 3, amount };
            database.call(kind.name(), &parameters.to_bytes()).await
        };
        assert_eq!(call(Kind::Debit, 7, 150_000).await?, 150_000_i64.to_le_bytes());
        assert_eq!(call(Kind::LimitCheck, 7, 50_000).await?, [1]);
        assert_eq!(call(Kind::LimitCheck, 7, 50_001).await?, [0]);
        assert_eq!(call(Kind::Payment, 7, 50_000).await?, 100_000_i64.to_le_bytes());
        let balance = call(Kind::Balance, 7, 0).await?;
        assert_eq!((&balance[..8], &balance[8..18]), (&100_000_i64.to_le_bytes()[..], &b"Customer 7"[..]));
        assert_eq!(call(Kind::CardCheck, 7, 0).await?, [1]);
        assert_eq!(call(Kind::CardCheck, 49, 0).await?, [0], "it has expired");
        assert_eq!(call(Kind::Lost, 7, 1988).await?, [1]);
        assert_eq!(call(Kind::Lost, 7, 1988).await?, [0], "it is reported already");
        assert_eq!(call(Kind::CardCheck, 7, 0).await?, [0], "it is hot");
        assert_eq!(call(Kind::Found, 7, 0).await?, [1]);
        assert_eq!(call(Kind::Found, 7, 0).await?, [0]);
        assert_eq!(call(Kind::Change, 7, 9).await?, [1]);
        assert!(matches!(database.call("PAY", b"too long for it").await, Err(Error::Argument(_))));
        assert!(totals(&database, &Tables::of(database.catalog(), |set| database.set_records(set))?).await?.agree());
        Ok::<(), Error>(())
    };
    executor.run(work).expect("the machine goes on").expect("the engine succeeds");
    executor.stop();
}
