use super::*;
use entresol::configuration::Update;
use workload::{Length, Load};

const OUTPUTS: [&str; 3] = ["response_us", "throughput_per_s", "hit_ratio_all"];

fn nothing(name: &str) -> io::Result<String> {
    Err(io::Error::other(format!("no file {name}")))
}

fn parse(text: &str, extent: Extent) -> Result<Experiment, ExperimentError> {
    Experiment::parse("an/e.toml", text, extent, &OUTPUTS, &nothing)
}

const TEXT: &str = r#"
title = "T"
base = "rahm-1991"
outputs = ["response_us.mean", { path = "hit_ratio_all", label = "hits", factor = 2.0 }]
[hardware.cpu]
mips = 25
[workload]
rate = 100
[run]
transactions = 1_000
[quick]
seconds = 3
[[series]]
name = "a"
[[series]]
name = "b"
configuration.log.device = "nvem"
hardware.device.nvem.medium.service = "70 us"
[[vary]]
parameter = "configuration.buffer.size"
values = { from = 100, to = 300, step = 100 }
quick = [200]
unit = "256 B"
name = "pages"
[[vary]]
parameter = "configuration.commit.update"
values = ["noforce", "force"]
"#;

#[test]
fn parameters_reach_every_run() {
    let experiment = parse(TEXT, Extent::Full).unwrap();
    assert_eq!(experiment.lines, ["a, noforce", "a, force", "b, noforce", "b, force"]);
    assert_eq!(experiment.points.len(), 12);
    assert_eq!(experiment.x.values, [(100.0, "100".to_owned()), (200.0, "200".to_owned()), (300.0, "300".to_owned())]);
    assert_eq!((experiment.outputs[1].label.as_str(), experiment.outputs[1].factor), ("hits", 2.0));
    for point in &experiment.points {
        let Setting { configuration, plan, .. } = &point.setting;
        let hardware = configuration.hardware.as_ref().unwrap();
        let is_b = point.line >= 2;
        assert_eq!(configuration.buffer.size, 25_600 * (point.x as u64 + 1));
        assert_eq!(configuration.commit.update == Update::Force, point.line % 2 == 1);
        assert_eq!(configuration.log.device, if is_b { "nvem" } else { "log-disk" });
        assert_eq!(hardware.cpu.as_ref().unwrap().mips, 25.0);
        let nvem = hardware.devices["nvem"].medium.as_ref().unwrap().service.read.clone();
        assert_eq!(nvem, devices::Law::Fixed(if is_b { 70_000 } else { 50_000 }));
        assert_eq!((plan.load, plan.measure), (Load::Open { rate_per_s: 100.0 }, Length::Transactions(1_000)));
    }
    let quick = parse(TEXT, Extent::Quick).unwrap();
    assert_eq!(quick.points.len(), 4);
    assert_eq!(quick.points[0].setting.plan.measure, Length::Time(3_000_000_000));
}

#[test]
fn a_parameter_may_differ_between_series() {
    let text = TEXT.replace(
        "parameter = \"configuration.buffer.size\"",
        "parameter = { a = \"configuration.buffer.size\", b = \"configuration.log.size\" }",
    );
    let text = text.replace("unit = \"256 B\"", "unit = \"1 MiB\"");
    let experiment = parse(&text, Extent::Full).unwrap();
    let sizes = |line: usize| {
        let point = experiment.points.iter().find(|point| point.line == line).unwrap();
        (point.setting.configuration.buffer.size, point.setting.configuration.log.size)
    };
    assert_eq!(sizes(0).0, 100 << 20);
    assert_eq!(sizes(2).1, 100 << 20);
}

#[test]
fn some_places_are_run_otherwise() {
    let at = "[[at]]\nvalues = [100, 300]\nrun = { transactions = 4_000, batches = 20 }\n\
              [[at]]\nvalues = [300]\nrun.transactions = 9_000\nconfiguration.buffer.size = \"1 MiB\"\n";
    let text = format!("{TEXT}{at}");
    for point in &parse(&text, Extent::Full).unwrap().points {
        let Setting { configuration, plan, batches, .. } = &point.setting;
        let (transactions, expected) = [(4_000, 20), (1_000, 10), (9_000, 20)][point.x];
        assert_eq!((plan.measure, *batches), (Length::Transactions(transactions), expected));
        assert_eq!(configuration.buffer.size == 1 << 20, point.x == 2, "laid over the abscissa, too");
    }
    for point in &parse(&text, Extent::Quick).unwrap().points {
        assert_eq!(point.setting.plan.measure, Length::Time(3_000_000_000), "not in a quick run");
    }
    for (from, to, what, allowed) in [
        ("[100, 300]", "[100, 150]", ":29:10: 150 is none of the first parameter's values", "100, 200, 300"),
        ("values = [300]", "values = 300", ":31:1: [[at]] has no list of 'values'", "100, 200, 300"),
        ("batches = 20", "batch = 20", ":30:31: unknown key 'batch' in [run]", "batches"),
        ("\"1 MiB\"", "\"much\"", ":34:29: ", "KiB"),
        (
            "configuration.buffer.size =",
            "configurations.buffer.size =",
            ":34:1: unknown key 'configurations' in [[at]]",
            "values",
        ),
    ] {
        let message = parse(&text.replacen(from, to, 1), Extent::Full).unwrap_err().to_string();
        assert!(message.contains(what) && message.contains(allowed), "{to}: {message}");
    }
}

/// The message for `TEXT` with `from` replaced by `to`.
fn message(from: &str, to: &str) -> String {
    assert!(TEXT.contains(from), "{from}");
    parse(&TEXT.replacen(from, to, 1), Extent::Full).unwrap_err().to_string()
}

#[test]
fn what_does_not_exist_is_shown_with_its_line_and_what_is_allowed() {
    let buffer = "\"configuration.buffer.size\"";
    let cases = [
        (buffer, "\"configuration.buffer.sise\"", ":20:13: unknown key 'sise' in [buffer]", "did you mean 'size'?"),
        (buffer, "\"configuration.bufer.size\"", ":20:13: unknown section 'bufer'", "did you mean 'buffer'?"),
        (buffer, "\"hardware.cpu.mibs\"", ":20:13: unknown field 'mibs'", "did you mean 'mips'?"),
        (
            buffer,
            "\"hardware.device.disk.medium.servise\"",
            ":20:13: unknown field 'servise'",
            "did you mean 'service'?",
        ),
        (buffer, "\"workload.rat\"", ":20:13: unknown key 'rat' in [workload]", "did you mean 'rate'?"),
        (buffer, "\"run.sead\"", ":20:13: unknown key 'sead' in [run]", "did you mean 'seed'?"),
        (buffer, "\"config.buffer.size\"", ":20:13: there is no parameter", "begins with configuration, hardware"),
        ("\"force\"]", "\"farce\"]", ":27:10: 'update' cannot be \"farce\"", "\"noforce\", \"force\""),
        ("log.device = \"nvem\"", "log.devise = \"nvem\"", ":17:19: unknown key 'devise'", "did you mean 'device'?"),
        ("log.device = \"nvem\"", "log.device = \"nwem\"", ":17:28: there is no device 'nwem'", "did you mean 'nvem'?"),
        ("mips = 25", "mips = 0", ":6:8: a speed is above zero", "6 | mips = 0"),
        ("rate = 100", "rate = -1", ":8:8: 'rate' cannot be -1", "a number above zero"),
        (
            "rate = 100",
            "kind = \"credit\"",
            ":8:8: 'kind' cannot be \"credit\"",
            "debit-credit, credit-card, tpc-c, ycsb, synthetic, trace, page-stream, page-server, nodes, sort, join",
        ),
        ("rate = 100", "kind = \"torture\"\nseeds = 0", ":9:9: 'seeds' cannot be 0", "a whole number from 1"),
        ("rate = 100", "kind = \"torture\"\nrate = 1", ":9:1: unknown key 'rate'", "seeds"),
        (
            "rate = 100",
            "rate = 100\nkind = \"synthetic\"\nsnapshot_age = \"old\"\n\
             model = { partition.p.objects = 9, type.t = { arrival_rate = 1, size = 1, write_probability = 1, references = { p = 1 } } }",
            ":10:16: 'snapshot_age' cannot be",
            "500 ms",
        ),
        ("rate = 100", "kind = \"sort\"\nrows = 1", ":9:8: 'rows' cannot be 1", "a whole number from 2"),
        ("rate = 100", "kind = \"sort\"\nmemory = \"much\"", ":9:10: 'memory' cannot be", "256 MiB"),
        ("rate = 100", "kind = \"join\"\nmethod = \"loop\"", ":9:10: 'method' cannot be \"loop\"", "sort-merge"),
        ("rate = 100", "kind = \"join\"\nclients = 2", ":9:1: unknown key 'clients'", "method"),
        ("\"hit_ratio_all\"", "\"hit_ratio\"", ":4:", "did you mean 'hit_ratio_all'?"),
        ("title", "titel", ":2:1: unknown key 'titel' in an experiment", "did you mean 'title'?"),
        ("step = 100", "step = 0", ":21:10: the range is empty", "from = 10"),
        ("base = \"rahm-1991\"", "base = \"other\"", ":3:8: the base 'other' cannot be read", "rahm-1991"),
        ("[hardware.cpu]", "[hardware.cpu", "this is not TOML", ""),
    ];
    for (from, to, what, allowed) in cases {
        let message = message(from, to);
        assert!(message.contains(what) && message.contains(allowed), "{to}: {message}");
        assert!(message.starts_with("an/e.toml"), "{message}");
    }
}

#[test]
fn a_models_mistake_is_shown_where_it_was_written() {
    let text = "base = \"rahm-1991\"\n[workload]\nkind = \"synthetic\"\n[workload.model.partition.p]\nobjets = 10\n\
                [[vary]]\nparameter = \"workload.rate\"\nvalues = [1]\n";
    let message = parse(text, Extent::Full).unwrap_err().to_string();
    assert!(message.starts_with("an/e.toml:5:"), "{message}");
}

#[test]
fn the_reference_names_every_key() {
    let experiment = Experiment::parse(
        "reference.toml",
        REFERENCE,
        Extent::Full,
        &["response_us", "hit_ratio_all", "utilization", "composition_us"],
        &nothing,
    );
    let experiment = experiment.unwrap();
    assert_eq!(experiment.lines.len(), 4);
    for key in ["labels", "replications", "batches", "y_max", "at", "unit", "quick", "clients", "warm_up"] {
        assert!(REFERENCE.contains(key), "{key}");
    }
}
