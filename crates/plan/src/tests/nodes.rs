//! Nodes that share a server's database: what is rented for them, and what joins them.

use super::read;
use crate::{Catalogue, Plan, PlanError};

const NODES: &str = r#"
version = 1
[workload]
kind = "nodes"
scale = 1
nodes = 3
clients = 2
[machine]
instance = "m6i.large"
[machine.volume.disk]
type = "gp3"
size = "20 GB"
[configuration]
buffer.size = "1 GiB"
nodes.buffer = "3 GiB"
"#;

/// What one computer adds: a network between its programs, and how they take turns.
const ONE: &str = "[hardware]\nnetwork.loopback.latency = \"5 us\"\ncpu.discipline = \"run-until-wait\"\n";

fn cost(plan: &Plan) -> f64 {
    assert_eq!((plan.candidates.len(), plan.refused.len()), (1, 0), "{:?}", plan.refused);
    plan.candidates[0].machine.cost_per_month()
}

#[test]
fn each_node_has_an_instance_that_is_paid_for() {
    let [instance, volume] = [0.096 * 730.0, 1.6];
    let plan = read(NODES).unwrap();
    assert!((cost(&plan) - (4.0 * instance + volume)).abs() < 1e-9, "{:?}", plan.candidates[0].machine.prices);
    assert!(plan.candidates[0].machine.prices.iter().any(|(what, _)| what == "3 nodes: m6i.large"));
    let of_one = read(&format!("{NODES}{ONE}").replace("3 GiB", "1 GiB")).unwrap();
    assert!((cost(&of_one) - (instance + volume)).abs() < 1e-9, "{:?}", of_one.candidates[0].machine.prices);
    let dear = read(&format!("{NODES}[limits]\ncost = 200\n")).unwrap();
    assert!(dear.candidates.is_empty() && dear.refused[0].unfit.limit() == "cost", "{:?}", dear.refused);
}

#[test]
fn memory_holds_the_buffers_of_the_nodes_that_are_on_it() {
    let limits = |text: &str| {
        let plan = read(text).unwrap();
        plan.refused.iter().map(|refused| refused.unfit.limit()).collect::<Vec<_>>()
    };
    assert!(limits(NODES).is_empty(), "3 GiB on each of three instances");
    assert_eq!(limits(&NODES.replace("3 GiB", "7200 MiB")), ["memory"], "7 GiB are left by the system");
    assert_eq!(limits(&format!("{NODES}{ONE}")), ["memory"], "10 GiB on one");
    assert!(limits(&format!("{NODES}{ONE}").replace("3 GiB", "1 GiB")).is_empty());
}

#[test]
fn what_joins_nodes_has_to_be_said() {
    let own = Catalogue::text("cloud-2026").unwrap().replace("network = \"zone-large\"\n", "");
    let parse = |text: &str| {
        let text = text.replacen("version = 1", "version = 1\ncatalogue = \"own.toml\"", 1);
        Plan::parse("plan.toml", &text, &|_: &str| Ok(own.clone()))
    };
    let said = |found: Result<Plan, PlanError>| found.err().map(|error| error.to_string()).unwrap_or_default();
    let unknown = said(parse(NODES));
    assert!(unknown.contains("nothing says what joins nodes on instances 'm6i.large'"), "{unknown}");
    assert_eq!(said(parse(&format!("{NODES}[hardware]\nnetwork.own.latency = \"50 us\"\n"))), "");
    let two = said(read(&format!("{NODES}[hardware]\nnetwork.own.latency = \"50 us\"\n")));
    assert!(two.contains("own, zone-large"), "{two}");
    let fifo = said(read(&format!("{NODES}[hardware]\nnetwork.loopback.latency = \"5 us\"\n")));
    assert!(fifo.contains("run-until-wait"), "{fifo}");
    let undescribed = Catalogue::text("cloud-2026").unwrap().replace("[network.zone-large]", "[network.zone]");
    let text = NODES.replacen("version = 1", "version = 1\ncatalogue = \"own.toml\"", 1);
    let undescribed = Plan::parse("plan.toml", &text, &|_: &str| Ok(undescribed.clone()));
    assert!(matches!(undescribed, Err(PlanError::Undescribed { what: "network", .. })), "{undescribed:?}");
}

#[test]
fn a_load_that_nodes_cannot_have_is_refused() {
    for (from, to, why) in [
        ("clients = 2", "rate = 100", "unknown key 'rate'"),
        ("clients = 2", "", "clients"),
        ("nodes = 3", "nodes = 25", "1 to 24"),
        ("version = 1", "version = 1\nrun.miniature = 2", "no miniature"),
    ] {
        let error = read(&NODES.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(why), "{to}: {error}");
    }
}
