//! What is said of wrong plans and catalogues, and that no text brings a reader down.

use super::{changed, read};
use crate::{Catalogue, EXAMPLE, Plan, PlanError};
use proptest::prelude::*;

#[test]
fn what_is_wrong_is_shown_where_it_was_written() {
    let cases = [
        ("p99 = \"25 ms\"", "p98 = \"25 ms\"", "p98 =", "did you mean 'p99'?"),
        ("p99 = \"25 ms\"", "p99 = \"soon\"", "p99 = \"soon\"", "a duration"),
        ("throughput = 390", "throughput = -1", "throughput = -1", "above zero"),
        ("\"instance-stop\"]", "\"instance-stops\"]", "instance-stops", "did you mean 'instance-stop'?"),
        ("instance = \"m6id.large\"", "instanse = \"m6id.large\"", "instanse", "did you mean 'instance'?"),
        ("\"m6i.large\", \"r6i.large\"", "\"m6i.lurge\", \"r6i.large\"", "m6i.lurge", "m6i.large"),
        ("log.size = \"2 GiB\"", "log.sise = \"2 GiB\"", "log.sise", "did you mean 'size'?"),
        ("design = \"clean-write\"", "design = \"clean-wrote\"", "clean-wrote", "clean-write"),
        ("{ type = \"gp3\" }", "{ type = \"gp4\" }", "{ type = \"gp4\" }", "did you mean 'gp3'?"),
        ("parameter = \"machine.instance\"", "parameter = \"machina.instance\"", "machina.instance", "machine"),
        ("kind = \"synthetic\"", "kind = \"synthetik\"", "synthetik", "did you mean 'synthetic'?"),
        ("miniature = 64", "miniature = 0", "miniature = 0", "a whole number"),
        ("rounds = 3", "round = 3", "round = 3", "did you mean 'rounds'?"),
        ("catalogue = \"cloud-2026\"", "catalogue = \"cloud-2062\"", "cloud-2062", "did you mean 'cloud-2026'?"),
        ("values = [\"40%\", \"75%\"]", "values = [\"140%\"]", "140%", "a share such as"),
        ("title = \"40 GB", "title = 40\n# \"40 GB", "title = 40", "a text"),
        ("[search]\n", "[search\n", "[search", "not TOML"),
    ];
    for (from, to, shown, said) in cases {
        let error = read(&changed(from, to)).err().unwrap_or_else(|| panic!("{to} was accepted"));
        let text = error.to_string();
        assert!(text.contains("plan.toml:"), "{to}: {text}");
        assert!(text.contains(shown) && text.contains(said), "{to}: {text}");
    }
}

#[test]
fn another_version_is_told() {
    for (text, found) in
        [(changed("version = 1", "version = 2"), "version 2"), (changed("version = 1", ""), "does not say")]
    {
        let error = read(&text).unwrap_err();
        assert!(matches!(error, PlanError::Version { .. }) && error.to_string().contains(found), "{error}");
    }
    let catalogue = Catalogue::text("cloud-2026").unwrap().replace("version = 1", "version = \"new\"");
    assert!(matches!(Catalogue::parse("own.toml", &catalogue), Err(PlanError::Version { .. })));
}

/// The example on the shipped catalogue with a change.
fn on_catalogue(from: &str, to: &str) -> Result<Plan, PlanError> {
    let catalogue = Catalogue::text("cloud-2026").unwrap();
    assert!(catalogue.contains(from), "{from}");
    let catalogue = catalogue.replacen(from, to, 1);
    let text = changed("catalogue = \"cloud-2026\"", "catalogue = \"own.toml\"");
    Plan::parse("plan.toml", &text, &|_: &str| Ok(catalogue.clone()))
}

#[test]
fn missing_prices_and_descriptions_are_named() {
    let error = on_catalogue("price_per_hour = 0.096\n", "").unwrap_err();
    assert!(matches!(&error, PlanError::PriceMissing { what: "instance", name, .. } if name == "m6i.large"), "{error}");
    let gp3 = "price = { per_gb = 0.08, per_operation = 0.005, operations_included = 3_000, per_mb = 0.04, mb_included = 125 }\n";
    let error = on_catalogue(gp3, "").unwrap_err();
    assert!(matches!(&error, PlanError::PriceMissing { what: "volume", .. }), "{error}");
    let error = on_catalogue("cpu = \"server-core\"", "cpu = \"slow-core\"").unwrap_err();
    assert!(matches!(&error, PlanError::Undescribed { what: "cpu", .. }), "{error}");
    let error = on_catalogue("[drive.nvme-small]", "[drive.nvme-tiny]").unwrap_err();
    assert!(matches!(&error, PlanError::Undescribed { what: "drive", .. }), "{error}");
    let error = on_catalogue("memory = \"8 GiB\"", "memory = \"8 gallons\"").unwrap_err();
    assert!(matches!(&error, PlanError::Text(_)) && error.to_string().contains("own.toml:"), "{error}");
    let missing = Plan::parse("plan.toml", &changed("\"cloud-2026\"", "\"none.toml\""), &|_: &str| {
        Err(std::io::ErrorKind::NotFound.into())
    });
    assert!(matches!(missing, Err(PlanError::Unreadable { what: "catalogue", .. })));
}

#[test]
fn volumes_beyond_their_bounds_are_refused_one_by_one_or_all() {
    let some = read(&changed("type = \"gp3\", operations = 6_000", "type = \"gp3\", operations = 60_000")).unwrap();
    assert!(some.refused.iter().any(|refused| refused.unfit.limit() == "volume"));
    let all = read(&changed("size = \"80 GB\"", "size = \"80 TB\""));
    assert!(matches!(all, Err(PlanError::OutOfBounds { .. })), "{all:?}");
}

/// Words that are put in place of others.
const WORDS: [&str; 14] = [
    "0",
    "-1",
    "1e308",
    "\"0 us\"",
    "\"1e99 s\"",
    "[]",
    "true",
    "\"\"",
    "nan",
    "inf",
    "\"-5 us\"",
    "{}",
    "\"9 EiB\"",
    "[{}]",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn mutated_plans_are_read_or_refused(changes in prop::collection::vec((any::<usize>(), 0..4_usize, 0..WORDS.len()), 1..4)) {
        let mut lines: Vec<String> = small().lines().map(str::to_owned).collect();
        for (at, kind, word) in changes {
            let at = at % lines.len();
            let last = lines.len() - 1;
            match kind {
                0 => lines[at].clear(),
                1 => lines.swap(at, last),
                _ => {
                    let key = lines[at].split('=').next().unwrap_or_default().to_owned();
                    lines[at] = format!("{key}= {}", WORDS[word]);
                }
            }
        }
        if let Err(error) = read(&lines.join("\n")) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}", head in any::<bool>()) {
        let text = if head { format!("version = 1\n{text}") } else { text };
        prop_assert!(read(&text).is_err());
        prop_assert!(Catalogue::parse("own.toml", &text).is_err());
    }

    #[test]
    fn mutated_catalogues_are_read_or_refused(at in any::<usize>(), word in 0..WORDS.len()) {
        let mut lines: Vec<String> = Catalogue::text("cloud-2026").unwrap().lines().map(str::to_owned).collect();
        let at = at % lines.len();
        let key = lines[at].split('=').next().unwrap_or_default().to_owned();
        lines[at] = format!("{key}= {}", WORDS[word]);
        let catalogue = lines.join("\n");
        let text = small().replace("\"cloud-2026\"", "\"own.toml\"");
        if let Err(error) = Plan::parse("plan.toml", &text, &|_: &str| Ok(catalogue.clone())) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

/// The example without most of what varies.
fn small() -> String {
    let few = "values = [\"m6i.large\", \"r6i.large\", \"m6id.large\", \"r6id.large\", \"r6id.xlarge\", \"i4i.large\"]";
    EXAMPLE.replace(few, "values = [\"m6id.large\"]").replace("values = [\"40%\", \"75%\"]", "values = [\"75%\"]")
}
