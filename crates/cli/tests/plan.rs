//! Plans from the command line to their answers, and what is said of wrong ones.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

#[path = "ground/command.rs"]
mod command;

use command::{printed, refused};
use serde_json::Value;
use std::fs;

/// A small plan: three instances, two logs, two buffers.
const PLAN: &str = r#"
version = 1
title = "A small plan"
[limits]
p99 = "40 ms"
survives = ["crash", "instance-stop"]
[workload]
kind = "synthetic"
rate = 300
[workload.model.partition.orders]
objects = 40_000
blocking_factor = 4
locks = "object"
subpartitions = [{ size = 20, access = 80 }, { size = 80, access = 20 }]
[workload.model.type.order]
arrival_rate = 1
size = 5
write_probability = 0.4
references = { orders = 1 }
[run]
transactions = 1_600
warm_up = 400
[search]
rounds = 2
factor = 2
least = 3
[machine]
instance = "m6id.large"
[machine.volume.disk]
type = "gp3"
size = "20 GB"
[configuration]
buffer.size = "8 MiB"
log.size = "16 MiB"
[[vary]]
parameter = "machine.volume.disk.operations"
values = [3_000, 9_000]
[[vary]]
parameter = "configuration.buffer.size"
values = ["8 MiB", "40 MiB"]
[[vary]]
name = "cache"
option = [
    { name = "no cache" },
    { name = "a cache", configuration.cache = { device = "local", size = "64 MiB", design = "lazy-cleaning" } },
    { name = "a log that is lost", configuration.log.device = "local" },
]
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn a_plan_is_searched_resumed_reported_and_opens_for_real() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("plan.toml"), PLAN).unwrap();
    let first = json(&printed(here, "plan plan.toml --resume plan.state --json"));
    assert_eq!((&first["candidates"], first["not_run"].as_array().unwrap().len()), (&Value::from(12), 4));
    assert!(first["failed"].as_array().unwrap().is_empty(), "{first:#}");
    let front = first["front"].as_array().unwrap();
    assert!(!front.is_empty(), "{first:#}");
    for point in front {
        let figures = &point["figures"];
        assert!(figures["recovery_s"].as_f64().unwrap() > 0.0, "{point:#}");
        assert!(
            figures["p99_us"].as_f64().unwrap() <= 40_000.0 && figures["throughput_per_s"].as_f64().unwrap() > 250.0
        );
        assert!(figures["wear"].as_array().unwrap().iter().any(|wear| wear["bytes_per_year"].as_f64().unwrap() > 0.0));
    }
    let figure = |point: &Value, name: &str| point["figures"][name].as_f64().unwrap();
    let is_better = |pair: &[Value]| {
        figure(&pair[0], "cost_per_month") < figure(&pair[1], "cost_per_month")
            && figure(&pair[0], "p99_us") > figure(&pair[1], "p99_us")
    };
    assert!(front.windows(2).all(is_better), "{first:#}");
    // All is known now: nothing is run again, and a line that was cut off is run once more.
    let again = json(&printed(here, "plan plan.toml --resume plan.state --json"));
    assert_eq!((&again["runs"], &again["front"]), (&Value::from(0), &first["front"]));
    let state = fs::read_to_string(here.join("plan.state")).unwrap();
    fs::write(here.join("plan.state"), &state[..state.len() - 20]).unwrap();
    let text = printed(here, "plan plan.toml --resume plan.state --report report --write data");
    assert!(text.contains("A small plan") && text.contains("12 candidates, 1 runs"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("next:") || front.len() == 1, "{text}");
    assert_eq!(fs::read_to_string(here.join("plan.state")).unwrap(), state);
    let page = fs::read_to_string(here.join("report/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("per month") && page.contains("limit 40"), "{page}");
    // What is written opens: a benchmark runs on it.
    let written = fs::read_to_string(here.join("data/entresol.toml")).unwrap();
    assert!(written.starts_with("# A small plan"), "{written}");
    let run = json(&printed(here, "bench debit-credit --data data --scale 1 --clients 2 --transactions 50 --json"));
    assert_eq!(run["transactions"], 50);
    let said = refused(here, "plan plan.toml --resume plan.state --write data");
    assert!(said.contains("exists already"), "{said}");
}

#[test]
fn a_search_that_the_time_ends_answers_from_the_longest_runs_that_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("plan.toml"), PLAN).unwrap();
    printed(here, "plan plan.toml --resume plan.state");
    let state = fs::read_to_string(here.join("plan.state")).unwrap();
    // The first round has eight runs. One of the second was done, and broke a limit that it kept in its shorter run.
    let mut lines: Vec<Value> = state.lines().map(json).collect();
    assert!(lines.len() > 9, "{state}");
    lines.truncate(9);
    lines[8]["figures"]["p99_us"] = Value::from(1e6);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(here.join("plan.state"), text).unwrap();
    let found = json(&printed(here, "plan plan.toml --resume plan.state --minutes 0.000001 --json"));
    assert_eq!(
        (&found["runs"], &found["rounds"]["finished"], &found["rounds"]["divisor"]),
        (&0.into(), &1.into(), &2.into())
    );
    let front = found["front"].as_array().unwrap();
    assert!(!front.is_empty() && front.iter().all(|point| point["figures"]["p99_us"].as_f64().unwrap() <= 40_000.0));
    let said = printed(here, "plan plan.toml --resume plan.state --minutes 0.000001");
    assert!(said.contains("The time was over in round 2 of 2"), "{said}");
    assert!(!said.contains("'recovery' was not looked at"), "{said}");
    // What is not known of a point is said.
    fs::write(here.join("restarts.toml"), PLAN.replace("p99 =", "recovery = \"1 h\"\np99 =")).unwrap();
    let said = printed(here, "plan restarts.toml --resume plan.state --minutes 0.000001");
    assert!(said.contains("The limit 'recovery' was not looked at for all points"), "{said}");
    // Nothing was run at all.
    fs::write(here.join("plan.toml"), PLAN.replace("[search]", "[search]\ntime = \"1 us\"")).unwrap();
    let said = refused(here, "plan plan.toml");
    assert!(said.contains("the limit 'time' is to blame"), "{said}");
}

/// The plan of one volume, one cache and these workloads.
fn of_workloads(workloads: &str) -> String {
    let vary = PLAN.find("[[vary]]").unwrap();
    let plan =
        PLAN[..vary].replace("rate = 300", "rate = 3_000").replace("write_probability = 0.4", "write_probability = 0");
    format!("{plan}\n[[vary]]\nparameter = \"workload.model.partition.orders.objects\"\nvalues = [{workloads}]\n")
        .replace("buffer.size = \"8 MiB\"", "buffer.size = \"1 MiB\"")
}

#[test]
fn each_workload_is_pruned_by_its_own_misses() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // A hundred pages fit the buffer; of thousands most are missed, more often than the volume reads.
    for (name, workloads) in [("small.toml", "400, 12_000"), ("large.toml", "12_000, 400")] {
        fs::write(here.join(name), of_workloads(workloads)).unwrap();
        let found = json(&printed(here, &format!("plan {name} --json")));
        let refused = found["not_run"].as_array().unwrap();
        assert_eq!(refused.len(), 1, "{found:#}");
        assert_eq!(
            (&refused[0]["limit"], &refused[0]["choices"]["orders objects"]),
            (&"throughput".into(), &"orders objects 12000".into()),
            "{found:#}"
        );
    }
}

#[test]
fn a_trace_that_was_recorded_anew_is_run_anew() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (begin, end) = (PLAN.find("[workload.model").unwrap(), PLAN.find("[run]").unwrap());
    let vary = PLAN.find("[[vary]]").unwrap();
    let plan = format!("{}{}", &PLAN[..begin], &PLAN[end..vary]);
    fs::write(here.join("plan.toml"), plan.replace("\"synthetic\"", "\"trace\"\ntrace = \"orders.trace\"")).unwrap();
    let record = |stride: u64| {
        let mut text = "entresol-trace 1\npartition p objects 1000 blocking-factor 5 locks page\ntype t\n".to_owned();
        (0..400).for_each(|number| text += &format!("begin t\nr p {}\n", number * stride % 1_000));
        fs::write(here.join("orders.trace"), text + "end transactions 400 references 400\n").unwrap();
    };
    let runs = || json(&printed(here, "plan plan.toml --resume plan.state --json"))["runs"].clone();
    record(1);
    assert_eq!([runs(), runs()], [1, 0], "the same trace is not run again");
    record(7);
    assert_eq!(runs(), 1);
}

#[test]
fn drives_that_are_rated_anew_are_judged_anew() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let begin = PLAN.find("[[vary]]").unwrap();
    let cache = "cache = { device = \"local\", size = \"64 MiB\", design = \"lazy-cleaning\" }";
    let plan = PLAN[..begin].replace("[limits]", "catalogue = [\"cloud-2026\", \"own.toml\"]\n[limits]") + cache;
    fs::write(here.join("plan.toml"), plan).unwrap();
    let years = |rated: &str| {
        let own = format!(
            "version = 1\ndate = \"2026-01-01\"\ncurrency = \"USD\"\n[instance.\"m6id.large\"]\nprice_per_month = 80\n\
             memory = \"8 GiB\"\ncpus = 2\ncpu = \"server-core\"\n\
             local = {{ drive = \"nvme-small\", capacity = \"118 GB\", rated_writes = \"{rated}\" }}\n"
        );
        fs::write(here.join("own.toml"), own).unwrap();
        let found = json(&printed(here, "plan plan.toml --resume plan.state --json"));
        let wear = found["front"][0]["figures"]["wear"].as_array().unwrap().clone();
        let years = wear.iter().find_map(|wear| wear["years_of_life"].as_f64()).unwrap();
        (found["runs"].as_u64().unwrap(), years)
    };
    let (before, after) = (years("200 TB"), years("100 TB"));
    assert_eq!((before.0, after.0), (1, 1), "of another drive nothing is known");
    assert!((before.1 / after.1 - 2.0).abs() < 1e-6, "{before:?}, {after:?}");
}

#[test]
fn a_restart_finds_the_sets_that_the_run_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (begin, end) = (PLAN.find("[workload]").unwrap(), PLAN.find("[run]").unwrap());
    let vary = PLAN.find("[[vary]]").unwrap();
    let (head, tail) = (&PLAN[..begin], &PLAN[end..vary]);
    let cards = "[workload]\nkind = \"credit-card\"\nscale = 1_000\nrate = 300\n";
    let sizes = "[[vary]]\nparameter = \"workload.scale\"\nvalues = [1_000, 40_000]\n";
    fs::write(here.join("plan.toml"), format!("{head}{cards}{tail}{sizes}")).unwrap();
    let found = json(&printed(here, "plan plan.toml --json"));
    let recovery = |scale: &str| {
        let of = |run: &&Value| run["choices"]["workload scale"] == scale || run["candidate"].as_str() == Some(scale);
        let run = found["run"].as_array().unwrap().iter().find(of).unwrap_or_else(|| panic!("{found:#}"));
        run["figures"]["recovery_s"].as_f64().unwrap()
    };
    let (small, large) = (recovery("scale 1000"), recovery("scale 40000"));
    // Both have an opening's own time in them, and the same load's log.
    assert!(large > 1.3 * small && small > 0.0, "{small} s and {large} s");
    // All of them are in memory, of which the miniature takes a part.
    let crowded = format!("{head}{}{tail}", cards.replace("1_000", "40_000_000"));
    fs::write(here.join("crowded.toml"), crowded.replace("warm_up = 400", "warm_up = 400\nminiature = 4_000")).unwrap();
    let said = refused(here, "plan crowded.toml");
    assert!(said.contains("the limit 'memory' is to blame") && said.contains("of memory, and there are"), "{said}");
}

#[test]
fn a_plan_without_an_answer_says_which_limit_is_to_blame() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let few =
        PLAN.replace("values = [3_000, 9_000]", "values = [3_000]").replace("[\"8 MiB\", \"40 MiB\"]", "[\"8 MiB\"]");
    fs::write(here.join("late.toml"), few.replace("\"40 ms\"", "\"10 us\"")).unwrap();
    let said = refused(here, "plan late.toml");
    assert!(said.contains("the limit 'p99' is to blame") && said.contains("The nearest is"), "{said}");
    fs::write(here.join("poor.toml"), few.replace("p99 =", "cost = 5\np99 =")).unwrap();
    let said = refused(here, "plan poor.toml");
    assert!(said.contains("the limit 'cost' is to blame") && said.contains("5.00 are allowed"), "{said}");
    let crowded = few.replace("rate = 300", "rate = 1_500");
    fs::write(here.join("crowded.toml"), crowded).unwrap();
    let said = refused(here, "plan crowded.toml");
    assert!(said.contains("is to blame"), "{said}");
    // With readers beside it, too, though nothing else is asked for.
    let beside = few.replace("rate = 300", "rate = 9_000\nreaders = 1").replace("p99 = \"40 ms\"\n", "");
    fs::write(here.join("beside.toml"), beside).unwrap();
    let said = refused(here, "plan beside.toml");
    assert!(said.contains("the limit 'arrivals' is to blame"), "{said}");
}

#[test]
fn wrong_plans_are_refused_with_words() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    assert!(refused(here, "plan none.toml").contains("none.toml"));
    fs::write(
        here.join("trace.toml"),
        PLAN.replace("kind = \"synthetic\"", "kind = \"trace\"\ntrace = \"none.trace\""),
    )
    .unwrap();
    let said = refused(here, "plan trace.toml");
    assert!(said.contains("unknown key 'model'"), "{said}");
    let begin = PLAN.find("[workload.model").unwrap();
    let end = PLAN.find("[run]").unwrap();
    let text = format!("{}{}", &PLAN[..begin], &PLAN[end..]);
    fs::write(here.join("trace.toml"), text.replace("\"synthetic\"", "\"trace\"\ntrace = \"none.trace\"")).unwrap();
    let said = refused(here, "plan trace.toml");
    assert!(said.contains("the trace 'none.trace' cannot be read"), "{said}");
    fs::write(here.join("old.toml"), PLAN.replace("version = 1", "version = 0")).unwrap();
    assert!(refused(here, "plan old.toml").contains("is of version 0"));
    fs::write(here.join("plan.toml"), PLAN).unwrap();
    fs::write(here.join("foreign.state"), "not a result\n").unwrap();
    let said = refused(here, "plan plan.toml --resume foreign.state");
    assert!(said.contains("foreign.state:1") && said.contains("no result of a plan"), "{said}");
}

#[test]
fn what_is_printed_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let example = printed(here, "plan --example");
    assert!(example.contains("[limits]") && example.contains("[[vary]]"));
    assert!(printed(here, "plan --catalogue").contains("[volume.gp3]"));
}

#[test]
fn a_sort_is_planned_by_its_whole_time() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let plan = r#"
version = 1
[limits]
p99 = "30 s"
[workload]
kind = "sort"
rows = 60_000
row_size = 100
memory = "1 MiB"
[machine]
instance = "m6id.large"
[machine.volume.disk]
type = "gp3"
size = "20 GB"
[configuration]
buffer.size = "1 MiB"
log.size = "4 MiB"
temp.cluster_size = "64 KiB"
[[vary]]
parameter = "configuration.temp.device"
values = ["disk", "local"]
"#;
    fs::write(here.join("plan.toml"), plan).unwrap();
    let found = json(&printed(here, "plan plan.toml --json"));
    assert_eq!(
        (&found["candidates"], found["failed"].as_array().map(Vec::len)),
        (&Value::from(2), Some(0)),
        "{found:#}"
    );
    let front = found["front"].as_array().unwrap();
    let fastest = front.last().unwrap_or_else(|| panic!("both keep the limit: {found:#}"));
    let figures = &fastest["figures"];
    assert!(figures["p99_us"].as_f64().unwrap() > 1_000.0 && figures["transactions"] == 1, "{fastest:#}");
    let written = figures["wear"].as_array().unwrap().iter().map(|wear| wear["bytes_per_year"].as_f64().unwrap());
    assert!(written.sum::<f64>() > 0.0, "{fastest:#}");
    assert!(fastest.to_string().contains("local"), "the instance's own drives are faster: {fastest:#}");
}

/// Two nodes with an instance each, or on the server's.
const NODES: &str = r#"
version = 1
title = "Nodes"
[limits]
survives = ["crash", "instance-stop"]
[workload]
kind = "nodes"
scale = 1
nodes = 2
clients = 2
[run]
transactions = 400
warm_up = 100
[search]
rounds = 2
factor = 2
least = 2
[machine]
instance = "m6i.large"
[machine.volume.disk]
type = "gp3"
size = "20 GB"
[configuration]
buffer.size = "8 MiB"
log.size = "64 MiB"
[[vary]]
parameter = "configuration.nodes.buffer"
values = ["1 MiB", "64 MiB"]
[[vary]]
name = "place"
option = [
    { name = "apart" },
    { name = "on one", hardware = { cpu.discipline = "run-until-wait", network.loopback.latency = "5 us" } },
]
"#;

#[test]
fn nodes_are_planned_for_with_what_they_cost() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("plan.toml"), NODES).unwrap();
    let found = json(&printed(here, "plan plan.toml --resume plan.state --json"));
    assert!(found["failed"].as_array().unwrap().is_empty() && found["candidates"] == 4, "{found:#}");
    let run = found["run"].as_array().unwrap();
    let figures = |buffer: &str, place: &str| {
        let is_this = |one: &&Value| {
            let choices = one["choices"].as_object().unwrap();
            let has = |label: &str| {
                choices.values().any(|choice| choice.as_str().is_some_and(|choice| choice.ends_with(label)))
            };
            has(place) && has(&format!(" {buffer}"))
        };
        &run.iter().find(is_this).unwrap_or_else(|| panic!("{found:#}"))["figures"]
    };
    let figure = |buffer: &str, place: &str, name: &str| figures(buffer, place)[name].as_f64().unwrap_or(-1.0);
    for place in ["apart", "on one"] {
        assert!(figure("64 MiB", place, "throughput_per_s") > 10.0, "{found:#}");
        let hits = figures("64 MiB", place)["hit_ratios"][0].as_f64().unwrap();
        assert!(hits > 0.3 && hits < 1.0, "of a node's memory: {found:#}");
        let busy = figures("64 MiB", place)["utilizations"].as_array().unwrap();
        assert!(busy.iter().any(|station| station[0] == "node 2.cpu" && station[1].as_f64() > Some(0.0)), "{busy:?}");
    }
    let cost = |place| figure("64 MiB", place, "cost_per_month");
    assert!((cost("apart") - cost("on one") - 2.0 * 0.096 * 730.0).abs() < 1e-6, "{found:#}");
    let front = found["front"].as_array().unwrap();
    for point in front {
        assert!(point["figures"]["recovery_s"].as_f64().unwrap() > 0.0, "{point:#}");
        let wear = point["figures"]["wear"].as_array().unwrap();
        assert!(wear.iter().any(|wear| wear["bytes_per_year"].as_f64().unwrap() > 0.0), "{point:#}");
    }
    let text = printed(here, "plan plan.toml --resume plan.state --write data");
    assert!(text.contains(", 0 runs") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let written = fs::read_to_string(here.join("data/entresol.toml")).unwrap();
    assert!(written.contains("[nodes]"), "{written}");
}
