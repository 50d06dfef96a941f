//! The end of a scenario: a last reader opens the database, and all that was shown to transactions has to be explained.

use super::actor::{log_key, page_key, record_key, tree_key, tree_number, version};
use super::course::Course;
use super::machines::{Failing, Machines};
use super::serving;
use super::shape::{LOG, PAGES, STOCK, THINGS, TREE};
use super::{set_orders, sets, things};
use crate::history::{Level, Span};
use base::time::SECOND_NS;
use engine::{Direction, Result};
use executor::Executor;
use std::ops::Bound;

/// How many anomalies are told.
const ANOMALIES_MAX: usize = 3;

/// How long what was not committed may keep a check from looking for lost pages, in nanoseconds of the machine's time.
const SEARCHED_NS_MAX: u64 = 60 * SECOND_NS;

/// Looks at what is on the media, and at the history. The server's machine does not run.
pub(super) fn judge(course: &Course, machines: &Machines) {
    let executor = machines.start(0, &Failing::default());
    match executor.run(read_last(&executor, course)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => course.wrong(format!("the last opening: {error}")),
        Err(halt) => course.wrong(format!("the last opening: {halt:?}")),
    }
    executor.stop();
    let anomalies = course.history.borrow().anomalies();
    anomalies.iter().take(ANOMALIES_MAX).for_each(|anomaly| course.wrong(anomaly.to_string()));
}

async fn read_last(executor: &Executor, course: &Course) -> Result<()> {
    let database = serving::open(executor, &course.shape).await?;
    let until = executor.now().plus_ns(SEARCHED_NS_MAX);
    let report = loop {
        let report = database.check(|_| {}).await?;
        match report.unsearched.first() {
            Some(_) if executor.now() < until => executor.sleep_ns(SECOND_NS).await,
            _ => break report,
        }
    };
    for why in &report.unsearched {
        course.wrong(format!("nothing looks for lost pages: {why}"));
    }
    if !report.findings.is_empty() {
        course.wrong(format!("the database is not sound: {:?}", report.findings));
    }
    // The power has taken the end of the log, for which no commit has waited.
    if !course.shape.is_durable {
        return database.close().await;
    }
    let history = || course.history.borrow_mut();
    let reader = history().begin(Level::Serializable);
    let mut tx = database.begin().await?;
    history().started(reader);
    let pages = database.partition(PAGES)?;
    for number in 0..course.shape.pages * course.shape.objects_on_page {
        let found = tx.read_object(pages, number, version).await?;
        history().read(reader, page_key(number), Some(found));
    }
    let tree = database.partition(TREE)?;
    let mut found = Vec::new();
    let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = tx.next(&mut cursor).await? {
        found.push((record_key(tree_number(&key)), version(&value)));
    }
    history().scanned(reader, TREE, Span::ALL, found);
    // Each record once more, by its key.
    for number in 0..course.shape.keys {
        let found = tx.get(tree, &tree_key(number)).await?;
        history().read(reader, record_key(number), found.map(|value| version(&value)));
    }
    let mut found = Vec::new();
    let look = |_, record: &[u8]| {
        found.push((log_key(version(record)), version(record)));
        true
    };
    tx.scan_appended(database.partition(LOG)?, look).await?;
    history().scanned(reader, LOG, Span::ALL, found);
    if course.shape.things > 0 {
        for found in things::read_last(&database, &mut tx).await? {
            history().scanned(reader, THINGS, Span::ALL, found);
        }
    }
    if course.shape.set_records > 0 {
        let found = sets::read_last(&database, &mut tx).await?;
        history().scanned(reader, STOCK, Span::ALL, found);
        for (store, found) in set_orders::read_last(&database, &mut tx).await? {
            history().scanned(reader, store, Span::ALL, found);
        }
    }
    history().asks(reader);
    tx.commit().await?;
    history().committed(reader);
    database.close().await
}
