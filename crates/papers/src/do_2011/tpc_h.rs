//! Section 4.4: TPC-H, by its power and throughput tests.

use super::*;
use crate::{Cell, Row};

/// The scale factors with their experiments.
const SCALES: [(u32, &str); 2] = [(30, "5-tpc-h-30"), (100, "5-tpc-h-100")];
const DESIGNS: [&str; 3] = ["LC", "DW", "TAC"];
/// Table 3: power and throughput of LC, DW, TAC and without an SSD.
const TABLE: [[[f64; 2]; 4]; 2] = [
    [[5978.0, 5601.0], [5917.0, 6643.0], [6386.0, 5639.0], [2733.0, 1229.0]],
    [[3836.0, 3228.0], [3204.0, 3691.0], [3705.0, 3235.0], [1536.0, 953.0]],
];
/// Places of the abscissa.
const POWER: f64 = 0.0;
const THROUGHPUT: f64 = 1.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (number, (scale, name)) in SCALES.into_iter().enumerate() {
        claims.extend(DESIGNS.iter().enumerate().flat_map(|(index, design)| {
            let tests = [("power", POWER), ("throughput", THROUGHPUT)];
            let factors =
                tests.map(|test| factor(results, (scale, name), test, (*design, paper(number, index, test.1))));
            factors.map(|claim| claim.seen_in(name))
        }));
        claims.push(composite(results, (number, scale, name)).seen_in(name));
        claims.push(alike(results, (scale, name)).seen_in(name));
    }
    claims
}

/// How many times as fast a design is in the paper.
fn paper(scale: usize, design: usize, test: f64) -> f64 {
    TABLE[scale][design][test as usize] / TABLE[scale][3][test as usize]
}

fn factor(
    results: &Results,
    (scale, name): (u32, &str),
    (test, place): (&str, f64),
    (design, paper): (&str, f64),
) -> Claim {
    let what =
        format!("TPC-H of scale factor {scale}, {test} test: how many times as fast {design} is as without an SSD.");
    let claim =
        Claim::new(&format!("D-8 {scale} {test}, {design}"), &what, &format!("{paper:.1} times")).judge(|claim| {
            let ours = speedup(results.trial(name)?, [design, NO_SSD], place)?;
            Some(claim.judged(ours.with_unit("times"), near(ours, paper), "Within 25 %.").with_interval(ours))
        });
    let is_calibrated = scale == SCALES[0].0 && place == POWER;
    if is_calibrated { claim.calibrated("The number of look-ups was calibrated on it.") } else { claim }
}

/// By how much more queries are done in an hour: the geometric mean of both tests.
fn composite_of(trial: &Trial, design: &str) -> Option<Estimate> {
    let [power, throughput] = [speedup(trial, [design, NO_SSD], POWER)?, speedup(trial, [design, NO_SSD], THROUGHPUT)?];
    let mean = (power.mean * throughput.mean).sqrt();
    let relative = |estimate: Estimate| estimate.half_width.unwrap_or(0.0) / estimate.mean;
    Some(Estimate { mean, half_width: Some(mean * relative(power).hypot(relative(throughput)) / 2.0) })
}

fn composite(results: &Results, (number, scale, name): (usize, u32, &str)) -> Claim {
    let of_paper = |design: usize| (paper(number, design, POWER) * paper(number, design, THROUGHPUT)).sqrt();
    let shown: Vec<String> =
        DESIGNS.iter().enumerate().map(|(index, design)| format!("{design} {:.1}", of_paper(index))).collect();
    let what = format!("TPC-H of scale factor {scale}: how many times as many queries an hour the designs do.");
    Claim::new(&format!("D-8 {scale} QphH"), &what, &shown.join(", ")).judge(|claim| {
        let trial = results.trial(name)?;
        let (mut verdicts, mut parts) = (Vec::new(), Vec::new());
        for (index, design) in DESIGNS.iter().enumerate() {
            let ours = composite_of(trial, design)?;
            verdicts.push(near(ours, of_paper(index)));
            parts.push(format!("{design} {:.1}", ours.mean));
        }
        Some(claim.judged(parts.join(", "), Verdict::all(verdicts), "Within 25 % each."))
    })
}

fn alike(results: &Results, (scale, name): (u32, &str)) -> Claim {
    let what = format!("TPC-H of scale factor {scale}: the designs perform alike.");
    Claim::new(&format!("D-8 {scale} alike"), &what, "similar").judge(|claim| {
        let trial = results.trial(name)?;
        let figures: Option<Vec<Estimate>> = DESIGNS.iter().map(|design| composite_of(trial, design)).collect();
        let mut figures = figures?;
        figures.sort_by(|one, other| one.mean.total_cmp(&other.mean));
        let ratio = figures[2] / figures[0];
        let reason = "Queries per hour of the best against the worst; similar is taken as within 25 %. Our stream of queries has no \
                      writes, and without dirty pages LC and DW are the same design: so this compares both with TAC, and says \
                      nothing of LC beside DW.";
        Some(claim.judged(ratio.with_unit("times"), ratio.at_most(1.0 + TOLERANCE), reason).with_interval(ratio))
    })
}

/// Table 3, in queries relative to those without an SSD.
pub(super) fn table(results: &Results) -> Table {
    let columns = ["LC", "DW", "TAC"].map(str::to_owned).to_vec();
    let mut rows = Vec::new();
    for (number, (scale, name)) in SCALES.into_iter().enumerate() {
        for (test, place) in [("power", POWER), ("throughput", THROUGHPUT)] {
            let cell = |(index, design): (usize, &&str)| {
                let ours = results.trial(name).and_then(|trial| speedup(trial, [design, NO_SSD], place));
                let paper = paper(number, index, place);
                Cell { tolerance: Some(paper * TOLERANCE), ..Cell::new(ours, paper) }
            };
            rows.push(Row {
                name: format!("{scale} SF, {test} test"),
                cells: DESIGNS.iter().enumerate().map(cell).collect(),
            });
        }
    }
    let title = "Table 3: TPC-H, times as fast as without an SSD".to_owned();
    Table { id: "D-8".to_owned(), title, columns, rows, places: 2 }
}
