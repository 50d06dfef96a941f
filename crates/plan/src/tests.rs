//! Plans that are read, refused, pruned and searched.

mod bad_input;
mod losses;
mod nodes;
mod search;

use crate::{EXAMPLE, Plan, PlanError};

/// There are no other files.
fn read(text: &str) -> Result<Plan, PlanError> {
    Plan::parse("plan.toml", text, &|_: &str| Err(std::io::ErrorKind::NotFound.into()))
}

/// The example with other words in place of these.
fn changed(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "the example has no {from}");
    EXAMPLE.replace(from, to)
}

#[test]
fn the_example_makes_candidates() {
    let plan = read(EXAMPLE).unwrap();
    assert_eq!(plan.candidates.len() + plan.refused.len(), 6 * 3 * 2 * 3 * 3);
    let small = plan.candidates.iter().find(|candidate| candidate.machine.instance == "m6id.large").unwrap();
    let configuration = &small.setting.configuration;
    assert_eq!(small.whole.buffer.size >> 20, (8_u64 << 10) * 40 / 100);
    let ratio = small.whole.buffer.size as f64 / configuration.buffer.size as f64;
    assert!((ratio / 64.0 - 1.0).abs() < 0.01, "{ratio}");
    assert_eq!(small.whole.checkpoint.interval_ns.unwrap() / configuration.checkpoint.interval_ns.unwrap(), 64);
    // 0.11865 an hour, and 80 GB at 0.08.
    assert!((small.machine.cost_per_month() - (0.11865 * 730.0 + 6.4)).abs() < 1e-9, "{:?}", small.machine.prices);
}

#[test]
fn prices_grow_with_what_is_asked_for() {
    let plan = read(EXAMPLE).unwrap();
    let cost = |volume: &str| {
        let found = plan.candidates.iter().find(|candidate| {
            let is_chosen = candidate.choices.iter().any(|(_, chosen)| chosen == volume);
            is_chosen && candidate.machine.instance == "r6i.large"
        });
        found.unwrap().machine.cost_per_month()
    };
    assert!((cost("gp3 6,000/s") - cost("gp3") - 3_000.0 * 0.005).abs() < 1e-9);
    assert!((cost("io2 3,000/s") - cost("gp3") - (80.0 * 0.045 + 3_000.0 * 0.065)).abs() < 1e-9);
}

#[test]
fn what_cannot_fit_is_told_before_anything_runs() {
    let plan = read(EXAMPLE).unwrap();
    let limits = |limit: &str| plan.refused.iter().filter(|refused| refused.unfit.limit() == limit).count();
    assert!(limits("drives") > 0 && limits("survives") > 0);
    assert_eq!(limits("memory") + limits("capacity"), 0);
    let crowded = read(&changed("size = \"80 GB\"", "size = \"41 GB\"")).unwrap();
    assert!(crowded.refused.iter().any(|refused| refused.unfit.limit() == "capacity"));
    let full = read(&changed("values = [\"40%\", \"75%\"]", "values = [\"40%\", \"95%\"]")).unwrap();
    assert!(full.refused.iter().any(|refused| refused.unfit.limit() == "memory"));
    let poor = read(&changed("cost = 400", "cost = 10")).unwrap();
    assert!(poor.candidates.is_empty() && poor.refused.iter().any(|refused| refused.unfit.limit() == "cost"));
}

#[test]
fn the_slots_of_a_cache_take_memory() {
    let plan = read(&changed("size = \"40 GiB\"", "size = \"100 GiB\"")).unwrap();
    let is_crowded = |refused: &&crate::Refused| {
        let has = |label: &str| refused.choices.iter().any(|(_, chosen)| chosen == label);
        has("m6id.large") && has("buffer size 75%") && !has("no cache") && has("log on the volume")
    };
    let crowded: Vec<_> = plan.refused.iter().filter(is_crowded).collect();
    // 6 GiB of the buffer and 13,107,200 slots in 7 GiB; for three volumes and two designs.
    assert!(crowded.len() == 6 && crowded.iter().all(|one| one.unfit.limit() == "memory"), "{crowded:#?}");
}

#[test]
fn configurations_are_written_as_they_are_read() {
    let plan = read(EXAMPLE).unwrap();
    for candidate in &plan.candidates {
        let text = candidate.configuration_text("For a test.\nOf two lines.");
        let read =
            entresol::configuration::Configuration::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(read.hardware.is_none() && text.starts_with("# For a test.\n# Of two lines.\n"), "{text}");
        assert_eq!(read.buffer, candidate.whole.buffer);
        assert_eq!(read.cache, candidate.whole.cache);
        assert_eq!((&read.log.device, read.log.size), (&candidate.whole.log.device, candidate.whole.log.size));
        if candidate.machine.places.contains_key("nvme") {
            assert_eq!(read.devices["nvme"].path.as_deref(), Some(std::path::Path::new("/mnt/nvme")));
        }
    }
}

#[test]
fn a_catalogue_of_ones_own_replaces_what_it_names() {
    let own = "version = 1\ndate = \"2026-01-01\"\ncurrency = \"USD\"\n[instance.\"m6i.large\"]\nprice_per_month = 1\n\
               memory = \"8 GiB\"\ncpus = 2\ncpu = \"server-core\"\n";
    let text = changed("catalogue = \"cloud-2026\"", "catalogue = [\"cloud-2026\", \"own.toml\"]");
    let read_file = |name: &str| {
        assert_eq!(name, "own.toml");
        Ok(own.to_owned())
    };
    let plan = Plan::parse("plan.toml", &text, &read_file).unwrap();
    let cheapest = plan.candidates.iter().map(|candidate| candidate.machine.cost_per_month()).reduce(f64::min).unwrap();
    assert!((cheapest - 7.4).abs() < 1e-9, "{cheapest}");
    let foreign = |name: &str| {
        assert_eq!(name, "own.toml");
        Ok(own.replace("USD", "EUR"))
    };
    assert!(matches!(Plan::parse("plan.toml", &text, &foreign), Err(PlanError::Currencies { .. })));
}
