//! Section 4.5: caching at two levels.

use crate::outcome::Trial;
use crate::{Cell, Claim, Estimate, Results, Row as Cells, Table, Verdict};

pub(super) const NOFORCE: &str = "4-5-noforce";
const FORCE: &str = "4-5-force";
const SIZES: &str = "4-5-second-level";
pub(super) const NONE: &str = "main memory only";
pub(super) const VOLATILE: &str = "volatile disk cache 1,000";
pub(super) const NON_VOLATILE: &str = "non-volatile disk cache 1,000";
pub(super) const BUFFER: &str = "write buffer only";
pub(super) const NVEM: &str = "NVEM cache 1,000";
pub(super) const NVEM_500: &str = "NVEM cache 500";

/// The buffer sizes of tables 4.2a and 4.2b.
const MAIN: [f64; 4] = [200.0, 500.0, 1_000.0, 2_000.0];

/// A row of the paper's tables: experiment, curve, and the hit ratios in % for [`MAIN`]. The main memory's come first.
pub(super) type CachingRow = (&'static str, &'static str, [f64; 4]);

pub(super) const TABLE: [CachingRow; 9] = [
    (NOFORCE, NONE, [53.7, 59.6, 66.7, 72.5]),
    (NOFORCE, VOLATILE, [12.8, 5.6, 0.0, 0.0]),
    (NOFORCE, NON_VOLATILE, [13.0, 7.4, 3.8, 0.8]),
    (NOFORCE, NVEM, [14.8, 11.0, 5.7, 1.1]),
    (NOFORCE, NVEM_500, [9.2, 7.1, 3.9, 0.8]),
    (FORCE, NONE, [53.7, 59.6, 66.7, 72.5]),
    (FORCE, VOLATILE, [12.4, 6.9, 0.1, 0.0]),
    (FORCE, NON_VOLATILE, [12.8, 7.0, 0.1, 0.0]),
    (FORCE, NVEM, [13.1, 7.2, 3.4, 0.6]),
];

/// How far a cell may be off, in points.
const TOLERANCE: f64 = 1.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let both = table(results).seen_in(NOFORCE).seen_in(FORCE);
    let noforce = [beyond(results), write_buffer(results), sum_of_sizes(results)].map(|claim| claim.seen_in(NOFORCE));
    let mut claims = vec![both];
    claims.extend(noforce);
    claims.push(sizes(results).seen_in(SIZES).seen_in(NOFORCE));
    claims
}

/// Tables 4.2a and 4.2b.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let table = |(name, title): (&str, &str)| {
        let rows = TABLE.iter().filter(|(of, ..)| *of == name).map(|(_, line, paper)| {
            let cell = |(size, paper): (&f64, &f64)| {
                let ours = results.trial(name).and_then(|trial| ratio(trial, line, *size));
                Cell { tolerance: Some(TOLERANCE), ..Cell::new(ours, *paper) }
            };
            let name = if *line == NONE { "main memory" } else { line };
            Cells { name: name.to_owned(), cells: MAIN.iter().zip(paper).map(cell).collect() }
        });
        let columns = MAIN.iter().map(|size| format!("{size} pages")).collect();
        Table { id: format!("R-4.2t {name}"), title: title.to_owned(), columns, rows: rows.collect(), places: 1 }
    };
    let titles = [
        (NOFORCE, "Table 4.2a: hit ratios under NOFORCE by the size of the main buffer, in %"),
        (FORCE, "Table 4.2b: hit ratios under FORCE by the size of the main buffer, in %"),
    ];
    titles.map(table).into()
}

/// The hit ratio of a row's level at a buffer size, in %.
fn ratio(trial: &Trial, line: &str, size: f64) -> Option<Estimate> {
    let path = if line == NONE { "hit_ratio_all" } else { "hit_ratio_second_level_all" };
    Some(trial.figure(line, size, path)? * 100.0)
}

/// Every cell of the tables: its name, what came out, and the paper's figure.
fn cells(results: &Results) -> Vec<(String, Estimate, f64)> {
    let mut cells = Vec::new();
    for (name, line, paper) in TABLE {
        for (size, paper) in MAIN.iter().zip(paper) {
            let ours = results.trial(name).and_then(|trial| ratio(trial, line, *size));
            cells.extend(ours.map(|ours| (label(name, line, *size), ours, paper)));
        }
    }
    cells
}

fn label(name: &str, line: &str, size: f64) -> String {
    let update = if name == FORCE { "FORCE" } else { "NOFORCE" };
    let line = if line == NONE { "main memory" } else { line };
    format!("{update}, {line}, buffer {size}")
}

fn table(results: &Results) -> Claim {
    let what =
        "Hit ratios of main memory and second level at 500 TPS, tables 4.2a and 4.2b, within 1.0 point in all cells.";
    Claim::new("R-4.2t", what, "36 cells").judge(|claim| {
        let cells = cells(results);
        if cells.len() < 36 {
            return None;
        }
        // Where the paper's figure is no more than the tolerance, a cache without any hit would pass.
        let (counted, trivial): (Vec<_>, Vec<_>) = cells.iter().partition(|(_, _, paper)| *paper > TOLERANCE);
        let judged = |cells: &[&(String, Estimate, f64)]| -> Vec<Verdict> {
            cells.iter().map(|(_, ours, paper)| ours.within(paper - TOLERANCE..=paper + TOLERANCE)).collect()
        };
        let verdicts = judged(&counted);
        let hold = verdicts.iter().filter(|verdict| **verdict == Verdict::Holds).count();
        let all = Verdict::all(verdicts.iter().copied().chain(judged(&trivial)));
        let error = |(_, ours, paper): &(String, Estimate, f64)| *ours - Estimate::exact(*paper);
        let worst = cells.iter().max_by(|a, b| error(a).mean.abs().total_cmp(&error(b).mean.abs()))?;
        let (ours, farthest) = (format!("{hold} of {} cells, the farthest {:+.1} points off", counted.len(), error(worst).mean), error(worst));
        let mut reason = format!(
            "The cell farthest off is {}: {:+.1} points, whose interval is given. {} cells are not counted, because the paper's \
             figure is 1.0 or less there and no hit at all would pass; they must not be off, either. The tables show every cell.",
            worst.0,
            farthest.mean,
            trivial.len(),
        );
        if all != Verdict::Holds {
            reason = format!("{reason} {OPEN}");
        }
        Some(claim.judged(ours, all, reason).with_interval(farthest))
    })
}

/// Why the second level's hits may be others than the paper's.
const OPEN: &str = "Open in the paper: whether a read miss of a new HISTORY page is cached, when the asynchronous disk write of a page \
    ends and so which pages count as unmodified, and in which order a replaced page is written or enters NVEM and the missing one \
    is read or leaves it.";

/// Why a volatile disk cache that is no larger than the buffer has hits at all.
const LEFTOVER: &str = "By the paper's own rules such a cache has a few hits: pages that are referenced again stay in main memory \
    longer than others, so one that is not leaves it after fewer misses (about 820 at 1,000 pages) than the disk cache has \
    room for, where the write of the replaced page then hits and keeps it. The paper prints 0; its tables are read as within \
    1.0 point, and 'gives nothing' as that and a response time that is shorter by 2 % at most.";

/// Up to this share a shorter response time is none.
const NOTHING: f64 = 0.02;

/// The most hits of a volatile cache at these places of an experiment, and by how much at most it shortens the response time
/// against `none` there, in milliseconds.
fn useless(
    trial: &Trial,
    line: &str,
    places: &[f64],
    none: impl Fn(f64) -> Option<Estimate>,
) -> Option<(Estimate, Estimate)> {
    let most = |figures: Vec<Estimate>| figures.into_iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
    let hits = places.iter().map(|size| ratio(trial, line, *size)).collect::<Option<_>>()?;
    let gains =
        places.iter().map(|size| Some(none(*size)? - trial.response_ms(line, *size)?)).collect::<Option<_>>()?;
    Some((most(hits)?, most(gains)?))
}

/// Whether that is nothing, of a response time of `of` milliseconds.
fn is_nothing(hits: Estimate, gain: Estimate, of: Estimate) -> Verdict {
    Verdict::all([hits.at_most(TOLERANCE), gain.at_most(NOTHING * of.mean)])
}

fn beyond(results: &Results) -> Claim {
    let what = "Response time hardly improves beyond 2,000 buffer pages, where no second-level hits are left at 5,000; a \
                volatile disk cache no larger than the buffer gives nothing.";
    Claim::new("R-4.4a", what, "hardly any gain from 2,000 to 5,000 pages").judge(|claim| {
        let trial = results.trial(NOFORCE)?;
        let time = |size| trial.response_ms(NONE, size);
        let gain = (time(2_000.0)? - time(5_000.0)?) / time(2_000.0)? * 100.0;
        let left = [VOLATILE, NON_VOLATILE, NVEM].map(|line| ratio(trial, line, 5_000.0));
        let left = left.into_iter().flatten().max_by(|a, b| a.mean.total_cmp(&b.mean))?;
        let (hits, shorter) = useless(trial, VOLATILE, &[1_000.0, 2_000.0], time)?;
        let reason = format!(
            "Second-level hits at 5,000 pages: at most {:.2} %. A volatile cache of 1,000 pages beside 1,000 and 2,000 \
             pages: hits at most {:.2} %, response time shorter by at most {:.2} ms, with an interval of {:.2} to either side. \
             {LEFTOVER}",
            left.mean,
            hits.mean,
            shorter.mean,
            shorter.half_width.unwrap_or(0.0),
        );
        let verdict =
            Verdict::all([gain.at_most(6.0), left.at_most(0.3), is_nothing(hits, shorter, time(2_000.0)?)]);
        Some(claim.judged(format!("{} shorter", gain.with_unit("%")), verdict, reason).with_interval(gain))
    })
}

fn write_buffer(results: &Results) -> Claim {
    let what = "The largest gain of non-volatile storage is the write buffer's; an NVEM cache of 500 pages beats a \
                non-volatile disk cache of 1,000.";
    Claim::new("R-4.4b", what, "write buffer > read hits; NVEM 500 < disk cache 1,000").judge(|claim| {
        let trial = results.trial(NOFORCE)?;
        let time = |line, size| trial.response_ms(line, size);
        let buffer = time(NONE, 500.0)? - time(BUFFER, 500.0)?;
        let more = time(BUFFER, 500.0)? - time(NVEM, 500.0)?;
        let pairs = MAIN.map(|size| Some((size, time(NVEM_500, size)?, time(NON_VOLATILE, size)?)));
        let pairs = pairs.into_iter().collect::<Option<Vec<_>>>()?;
        let listed = |(size, nvem, disk): &(f64, Estimate, Estimate)| {
            format!("{:.1} and {:.1} ms at {size} pages", nvem.mean, disk.mean)
        };
        let reason = format!(
            "At 500 pages the write buffer alone gains {}, an NVEM cache of 1,000 {} more. NVEM 500 and disk cache 1,000 take \
             {}.",
            buffer.with_unit("ms"),
            more.with_unit("ms"),
            pairs.iter().map(listed).collect::<Vec<_>>().join(", ")
        );
        let shorter = pairs.iter().map(|(_, nvem, disk)| (*nvem - *disk).at_most(0.0));
        let verdict = Verdict::all(shorter.chain([(buffer - more).at_least(0.0)]));
        Some(claim.judged(format!("{} by the write buffer", buffer.with_unit("ms")), verdict, reason).with_interval(buffer))
    })
}

fn sum_of_sizes(results: &Results) -> Claim {
    let what = "Under NOFORCE the combined hit ratio of main memory and NVEM depends only on their sum (1000/0 = 500/500; \
                2000/0 = 1000/1000; 500/1000 = 1000/500).";
    Claim::new("R-4.4c", what, "equal").judge(|claim| {
        let trial = results.trial(NOFORCE)?;
        let both = |line: &str, size| {
            let main = trial.figure(line, size, "hit_ratio_all")? * 100.0;
            if line == NONE { Some(main) } else { Some(main + ratio(trial, line, size)?) }
        };
        let pairs = [
            (both(NONE, 1_000.0)?, both(NVEM_500, 500.0)?),
            (both(NONE, 2_000.0)?, both(NVEM, 1_000.0)?),
            (both(NVEM, 500.0)?, both(NVEM_500, 1_000.0)?),
        ];
        let shown = pairs.map(|(a, b)| format!("{:.1} % and {:.1} %", a.mean, b.mean)).join("; ");
        let differences = pairs.map(|(a, b)| b - a);
        let worst = differences.into_iter().max_by(|a, b| a.mean.abs().total_cmp(&b.mean.abs()))?;
        let reason = format!("The three pairs: {shown}. The largest difference is given.");
        let verdict = Verdict::all(differences.map(|difference| difference.within(-TOLERANCE..=TOLERANCE)));
        Some(claim.judged(format!("{:+.2} points", worst.mean), verdict, reason).with_interval(worst))
    })
}

fn sizes(results: &Results) -> Claim {
    let what = "Buffer 500, second level 200 to 5,000: NVEM best at every size, volatile worst; volatile of 200 or 500 pages \
                gives nothing.";
    Claim::new("R-4.5a", what, "NVEM < non-volatile < volatile").judge(|claim| {
        let trial = results.trial(SIZES)?;
        let (mut wrong, mut orders) = (Vec::new(), Vec::new());
        for size in trial.places() {
            let time = |line| trial.response_ms(line, size);
            let (nvem, non_volatile, volatile) =
                (time("NVEM cache")?, time("non-volatile disk cache")?, time("volatile disk cache")?);
            let order = Verdict::all([(nvem - non_volatile).at_most(0.0), (non_volatile - volatile).at_most(0.0)]);
            if order != Verdict::Holds {
                let [nvem, non_volatile, volatile] = [nvem, non_volatile, volatile].map(|time| time.mean);
                wrong.push(format!("at {size} pages {nvem:.1}, {non_volatile:.1} and {volatile:.1} ms ({})", order.word()));
            }
            orders.push(order);
        }
        let none = results.trial(NOFORCE)?.response_ms(NONE, 500.0)?;
        let (hits, shorter) = useless(trial, "volatile disk cache", &[200.0, 500.0], |_| Some(none))?;
        let order = match wrong.is_empty() {
            true => "The order of response times is the paper's at every size.".to_owned(),
            false => format!("NVEM, non-volatile, volatile: {}.", wrong.join("; ")),
        };
        let reason = format!(
            "{order} The largest hit ratio of a volatile cache of 200 or 500 pages is given; response time is shorter than \
             without by at most {:.2} ms, with an interval of {:.2} to either side. {LEFTOVER}",
            shorter.mean,
            shorter.half_width.unwrap_or(0.0),
        );
        let verdict = Verdict::all(orders.into_iter().chain([is_nothing(hits, shorter, none)]));
        Some(claim.judged(hits.with_unit("%"), verdict, reason).with_interval(hits))
    })
}
