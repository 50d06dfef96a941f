//! What a benchmark does with an open database, alike for every workload: measure, record, report, close.

use super::meter::Meter;
use super::summary::{self, Headline};
use crate::Failure;
use crate::progress::Progress;
use crate::report::{Clock, RunReport, WarmedUp};
use crate::trace::Recording;
use base::Instant;
use entresol::{Database, Store};
use workload::trace::record::Recorded;
use workload::{Load, Plan, Workload};

/// One run of a benchmark.
pub struct Run<'a> {
    /// The workload and its parameters, for people; the load excepted.
    pub name: String,
    /// How long it lasts and under what load.
    pub plan: Plan,
    /// The parts, in seconds, whose throughput is shown, if it is.
    pub course: Option<f64>,
    /// Whether it is measured behind the warm-up of the plan, whatever the state is: not until it is steady.
    pub cold: bool,
    /// What its references are recorded by, if they are.
    pub recording: Option<&'a Recording>,
}

/// Measures, through the transaction server where the configuration has one, the workload that `prepare` makes on the engine's thread.
pub fn measure<W: Workload>(
    store: &Store,
    run: Run<'_>,
    progress: &Progress,
    prepare: impl AsyncFnOnce(&Database) -> entresol::Result<W>,
) -> Result<RunReport, Failure> {
    let Run { name, plan, course, cold, recording } = run;
    let headline = Headline {
        workload: format!("{name}, {}", words(&plan.load)),
        seed: plan.seed,
        clock: if store.is_virtual() { Clock::Virtual } else { Clock::Real },
        warnings: store.warnings(),
    };
    let server = store.transaction_server()?;
    let mut meter = Meter::new(progress, &plan, store.is_virtual());
    if store.is_virtual() && !cold {
        meter = meter.until_steady();
    }
    let mut opening_ns = 0;
    let mut report = store.run(async |database| {
        let workload = Recorded::new(database, prepare(database).await?, recording.map(Recording::recorder));
        opening_ns = database.executor().now().since_ns(Instant::START);
        let server = server.filter(|_| !workload.procedures().is_empty());
        let mut headline = Some(headline);
        let report = |measured| summary::report(database, headline.take().expect("one batch ends once"), &measured);
        let Some(server) = server else {
            return workload::run::run(database, workload, &plan, &mut meter, report).await;
        };
        let mut reports = workload::run::run_through(&server, workload, &plan, 1, &mut meter, report).await?;
        server.close().await;
        Ok(reports.pop().expect("a run that has not failed has measured"))
    })?;
    report.warm_up = meter.warm_up().map(WarmedUp::from);
    report.course = course.map(|interval| meter.course(opening_ns, (interval * 1e9) as u64));
    if let Some(recording) = recording {
        recording.finish(store.database());
    }
    Ok(report)
}

/// Closes the database; a described machine just vanishes.
pub fn close(store: Store) -> Result<(), Failure> {
    if !store.is_virtual() {
        store.close()?;
    }
    Ok(())
}

/// A load for people.
fn words(load: &Load) -> String {
    match load {
        Load::Closed { clients: 1 } => "1 client".to_owned(),
        Load::Closed { clients } => format!("{clients} clients"),
        Load::Full => "a full request queue".to_owned(),
        // Sums of rates have digits without meaning.
        Load::Open { rate_per_s } => format!("{} arrivals/s", (rate_per_s * 1e3).round() / 1e3),
    }
}
