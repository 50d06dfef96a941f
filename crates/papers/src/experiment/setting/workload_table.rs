//! From the table `workload` to what it names.

use super::{Operation, Sources, Work, flag, said_by_serde, whole};
use crate::experiment::{ExperimentError, document};
use base::units::{parse_duration_ns, parse_size};
use devices::Hardware;
use entresol::configuration::{Problem, nearest};
use toml::{Table, Value};
use workload::page_server::{self, Pattern};
use workload::page_stream::Stream;
use workload::snapshot_readers::Readers;
use workload::synthetic::Model;
use workload::ycsb::Mix;

/// What the table says is to be run.
pub(super) fn work(table: &Table, sources: &Sources<'_>) -> Result<Work, ExperimentError> {
    let kinds = [
        "debit-credit",
        "credit-card",
        "tpc-c",
        "ycsb",
        "synthetic",
        "trace",
        "page-stream",
        "page-server",
        "nodes",
        "sort",
        "join",
        "torture",
    ];
    let kind = table.get("kind").and_then(Value::as_str).unwrap_or("debit-credit");
    let only = |own: &[&str]| {
        let loads: &[&str] = match kind {
            "sort" | "join" | "torture" => &[],
            "nodes" => &["clients"],
            _ => &["rate", "clients", "full"],
        };
        let known: Vec<&str> = ["kind"].iter().chain(loads).chain(own).copied().collect();
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let near = nearest(key, known.iter().copied()).map(str::to_owned);
                let section = format!("[workload] of kind \"{kind}\"");
                let problem = Problem::Unknown { what: "key", name: key.clone(), section };
                Err(sources.error(&format!("workload.{key}"), problem, &known.join(", "), near))
            }
        }
    };
    let missing = |key: &str, allowed: &str| {
        sources.error("workload", Problem::Conflict(format!("[workload] has no '{key}'")), allowed, None)
    };
    match kind {
        "debit-credit" => {
            only(&["scale"])?;
            let branches = whole(table, "workload", "scale", 1, 40_000, sources)?.unwrap_or(500) as u32;
            Ok(Work::DebitCredit { branches })
        }
        "credit-card" => {
            only(&["scale", "restart"])?;
            let accounts = whole(table, "workload", "scale", 2, 1 << 32, sources)?.unwrap_or(40_000);
            let restart = flag(table, "restart", sources)?;
            Ok(Work::CreditCard { accounts, restart })
        }
        "synthetic" => {
            only(&["model", "readers", "snapshot_age"])?;
            let Some(Value::Table(model)) = table.get("model") else {
                return Err(missing("model", "[workload.model] with a model's description"));
            };
            let text = toml::to_string(model).expect("a table of TOML is TOML");
            let model = Model::parse(&text, "model").map_err(|error| {
                let path = document::path_at(&text, error.line.unwrap_or(0));
                let (problem, allowed, near) = said_by_serde(&error.problem);
                sources.error(&format!("workload.model.{path}"), problem, &allowed, near)
            })?;
            Ok(Work::Synthetic { model: Box::new(model), readers: readers(table, sources)? })
        }
        "trace" => {
            only(&["trace"])?;
            let Some(Value::String(trace)) = table.get("trace") else {
                return Err(missing("trace", "trace = \"rahm-1991\" or the path of a trace"));
            };
            Ok(Work::Trace { trace: trace.clone() })
        }
        "tpc-c" => {
            only(&["scale", "shrink"])?;
            let warehouses = whole(table, "workload", "scale", 1, 10_000, sources)?.unwrap_or(1) as u32;
            let shrink = whole(table, "workload", "shrink", 1, 100, sources)?.unwrap_or(1) as u32;
            Ok(Work::TpcC { warehouses, shrink })
        }
        "ycsb" => {
            only(&["scale", "mix"])?;
            let letter = table.get("mix").and_then(Value::as_str).unwrap_or("a");
            let Some(mix) = Mix::named(letter) else {
                let problem = Problem::UnknownWord { key: "mix".to_owned(), value: letter.to_owned() };
                return Err(sources.error("workload.mix", problem, "a, b, c, d, e, f", None));
            };
            let records = whole(table, "workload", "scale", 1, 1 << 32, sources)?.unwrap_or(100_000);
            Ok(Work::Ycsb { mix, records })
        }
        "page-stream" => {
            only(&["stream", "pages"])?;
            let name = table.get("stream").and_then(Value::as_str).unwrap_or("tpc-c");
            let Some(stream) = Stream::named(name) else {
                let problem = Problem::UnknownWord { key: "stream".to_owned(), value: name.to_owned() };
                let near = nearest(name, Stream::names().into_iter()).map(str::to_owned);
                return Err(sources.error("workload.stream", problem, &Stream::names().join(", "), near));
            };
            let pages = whole(table, "workload", "pages", 1, 1 << 32, sources)?.unwrap_or(100_000);
            Ok(Work::PageStream { stream, pages })
        }
        "page-server" => {
            only(&[
                "algorithm",
                "chances",
                "working",
                "pattern",
                "write_probability",
                "client_pages",
                "client_hardware",
                "network",
                "commit_pages",
            ])?;
            page_server(table, sources)
        }
        "nodes" => {
            only(&["scale", "nodes"])?;
            let branches = whole(table, "workload", "scale", 1, 40_000, sources)?.unwrap_or(10) as u32;
            let nodes = whole(table, "workload", "nodes", 1, 24, sources)?.unwrap_or(2) as u32;
            Ok(Work::Nodes { branches, nodes })
        }
        "sort" => {
            only(&["rows", "row_size", "memory"])?;
            spill(table, Operation::Sort, sources)
        }
        "join" => {
            only(&["rows", "row_size", "memory", "method"])?;
            // Without it as `entresol bench join` does.
            let operation = match table.get("method").map_or(Some("hash"), Value::as_str) {
                Some("hash") => Operation::HashJoin,
                Some("sort-merge") => Operation::SortMergeJoin,
                other => {
                    let value = other.unwrap_or_default().to_owned();
                    let problem = Problem::UnknownWord { key: "method".to_owned(), value };
                    return Err(sources.error("workload.method", problem, "\"hash\", \"sort-merge\"", None));
                }
            };
            spill(table, operation, sources)
        }
        "torture" => {
            only(&["seeds"])?;
            Ok(Work::Torture { seeds: whole(table, "workload", "seeds", 1, 1 << 32, sources)?.unwrap_or(100) })
        }
        other => {
            let near = nearest(other, kinds.iter().copied()).map(str::to_owned);
            let problem = Problem::UnknownWord { key: "kind".to_owned(), value: other.to_owned() };
            Err(sources.error("workload.kind", problem, &kinds.join(", "), near))
        }
    }
}

/// Clients of a page server; without other words those of Franklin, Carey and Livny 1992 with callback locking.
fn page_server(table: &Table, sources: &Sources<'_>) -> Result<Work, ExperimentError> {
    let word = |key: &str, usual: &str| table.get(key).and_then(Value::as_str).unwrap_or(usual).to_owned();
    let unknown = |key: &str, value: &str, known: &[&str]| {
        let problem = Problem::UnknownWord { key: key.to_owned(), value: value.to_owned() };
        let near = nearest(value, known.iter().copied()).map(str::to_owned);
        sources.error(&format!("workload.{key}"), problem, &known.join(", "), near)
    };
    let algorithm = word("algorithm", page_server::ALGORITHMS[0]);
    if !page_server::ALGORITHMS.contains(&algorithm.as_str()) {
        return Err(unknown("algorithm", &algorithm, &page_server::ALGORITHMS));
    }
    let pattern = word("pattern", Pattern::WORDS[0].0);
    let found = Pattern::WORDS.iter().find(|(known, _)| *known == pattern);
    let pattern = found.ok_or_else(|| unknown("pattern", &pattern, &Pattern::WORDS.map(|(known, _)| known)))?.1;
    let write_probability = match table.get("write_probability") {
        None => 0.0,
        Some(value) => {
            let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
            number.filter(|number| (0.0..=1.0).contains(number)).ok_or_else(|| {
                let problem = Problem::OutOfRange { key: "write_probability".to_owned(), value: value.to_string() };
                sources.error("workload.write_probability", problem, "a number from 0 to 1", None)
            })?
        }
    };
    let pages_max = u64::from(page_server::DATABASE_PAGES);
    let client_pages = whole(table, "workload", "client_pages", 40, pages_max, sources)?.unwrap_or(62) as u32;
    let clients = whole(table, "workload", "clients", 1, 65_536, sources)?.unwrap_or(1);
    if clients > u64::from(page_server::CLIENTS_MAX) {
        let problem = Problem::OutOfRange { key: "clients".to_owned(), value: clients.to_string() };
        let allowed = format!("1 to {}: each has a hot region", page_server::CLIENTS_MAX);
        return Err(sources.error("workload.clients", problem, &allowed, None));
    }
    let working = whole(table, "workload", "working", 1, clients, sources)?.map(|working| working as u32);
    let chances = whole(table, "workload", "chances", 0, u64::from(u8::MAX), sources)?;
    let chances = chances.map_or(page_server::CHANCES, |chances| chances as u8);
    let hardware = word("client_hardware", "franklin-1992-client");
    let client = Hardware::named(&hardware)
        .map_err(|_| unknown("client_hardware", &hardware, &Hardware::names().collect::<Vec<_>>()))?;
    let network = word("network", "slow");
    let commits_pages = !table.contains_key("commit_pages") || flag(table, "commit_pages", sources)?;
    let model = page_server::PageServerModel {
        algorithm,
        chances,
        working,
        pattern,
        write_probability,
        client_pages,
        network,
        commits_pages,
    };
    Ok(Work::PageServer { model: Box::new(model), client: Box::new(client) })
}

/// Readers of snapshots, if there are any: of an age of a second, unless said otherwise.
fn readers(table: &Table, sources: &Sources<'_>) -> Result<Readers, ExperimentError> {
    let count = whole(table, "workload", "readers", 0, 65_536, sources)?.unwrap_or(0) as u32;
    let age_ns = match table.get("snapshot_age") {
        None => base::time::SECOND_NS,
        Some(value) => value.as_str().and_then(|age| parse_duration_ns(age).ok()).ok_or_else(|| {
            let problem = Problem::OutOfRange { key: "snapshot_age".to_owned(), value: value.to_string() };
            sources.error("workload.snapshot_age", problem, "a duration such as \"500 ms\"", None)
        })?,
    };
    Ok(Readers { count, age_ns })
}

/// A sort or a join; without other words a gigabyte of rows of 100 bytes.
fn spill(table: &Table, operation: Operation, sources: &Sources<'_>) -> Result<Work, ExperimentError> {
    let rows = whole(table, "workload", "rows", 2, 1 << 40, sources)?.unwrap_or(10_000_000);
    let row_size = whole(table, "workload", "row_size", 16, 1 << 20, sources)?.unwrap_or(100) as u32;
    let memory = match table.get("memory") {
        None => 256 << 20,
        Some(value) => value.as_str().and_then(|size| parse_size(size).ok()).ok_or_else(|| {
            let problem = Problem::OutOfRange { key: "memory".to_owned(), value: value.to_string() };
            sources.error("workload.memory", problem, "a size such as \"256 MiB\"", None)
        })?,
    };
    Ok(Work::Spill { operation, rows, row_size, memory })
}
