//! Nodes as processes over TLS: who is let in, what it may do, and what is refused by name.
#![allow(clippy::disallowed_methods, reason = "tests make directories and certificates")]

#[path = "ground/certificates.rs"]
mod certificates;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;

use certificates::{Authority, write};
use command::{printed, refused};
use processes::Process;
use serde_json::Value;
use std::io::Write;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const GRANTS: &str =
    "[node.teller]\nwrite = [\"account\", \"teller\", \"branch\", \"history\"]\n[node.auditor]\nread = [\"*\"]\n";

/// A directory with a small bank in `bank`, a table of grants and the credentials of a server and some nodes.
struct Ground {
    directory: TempDir,
    authority: Authority,
    server: String,
}

impl Ground {
    fn new() -> Ground {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let text = "[log]\nsize = \"16 MiB\"\n[buffer]\nsize = \"32 MiB\"\n[driver]\nbackend = \"thread-pool\"\n";
        std::fs::create_dir(directory.path().join("bank")).expect("a directory");
        write(&directory.path().join("bank/entresol.toml"), text);
        write(&directory.path().join("grants.toml"), GRANTS);
        printed(directory.path(), "bench debit-credit --data bank --scale 1 --transactions 1 --clients 1 --json");
        let authority = Authority::named("ours");
        let server = authority.issue(directory.path(), &["server", "127.0.0.1"]);
        Ground { directory, authority, server }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn serve(&self, address: &str) -> (Process, String) {
        let line = format!("node --serve {address} --data bank --grants grants.toml --json {}", self.server);
        let mut server = Process::start(self.path(), &line);
        let said = server.line();
        let Some(address) = said.strip_prefix("serving 'bank' at ") else { panic!("{said} {}", server.end().error) };
        let address = address.to_owned();
        (server, address)
    }

    fn node(&self, name: &str) -> String {
        self.authority.issue(self.path(), &[name])
    }
}

fn bench(address: &str, credentials: &str) -> String {
    format!("bench debit-credit --join {address} --transactions 20 --json {credentials}").trim_end().to_owned()
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} of {report}"))
}

/// Asks the server to end, and returns what it has done.
fn ended(server: Process) -> (Value, String) {
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    (serde_json::from_str(&ended.output).expect("JSON"), ended.error)
}

#[test]
fn nodes_do_what_they_are_granted_and_strangers_nothing() {
    let ground = Ground::new();
    let (server, address) = ground.serve("127.0.0.1:0");
    let report: Value =
        serde_json::from_str(&printed(ground.path(), &bench(&address, &ground.node("teller")))).expect("JSON");
    assert_eq!((number(&report, "transactions"), number(&report, "unknown")), (20, 0));
    let said = refused(ground.path(), &bench(&address, &ground.node("auditor")));
    assert!(said.contains("'auditor' may not write partition '"), "{said}");
    let said = refused(ground.path(), &bench(&address, &ground.node("cook")));
    assert!(said.contains("'cook' may not read partition '"), "{said}");
    let other = Authority::named("other").issue(ground.path(), &["stranger"]);
    // It knows whom it seeks.
    std::fs::copy(ground.path().join("server.authority"), ground.path().join("stranger.authority")).expect("a file");
    let said = refused(ground.path(), &bench(&address, &other));
    assert!(said.contains("UnknownCA") && said.contains("does not accept"), "{said}");
    let said = refused(ground.path(), &bench(&address, ""));
    assert!(said.contains("speaks TLS"), "{said}");
    // Who may read everything may look at the others.
    let shell = |name: &str| format!("shell --server {address} {}", ground.node(name));
    assert_eq!(printed(ground.path(), &shell("auditor")), "");
    let looks = |name: &str| processes::fed(ground.path(), &shell(name), "nodes\n");
    let (shown, mistakes) = looks("auditor");
    // Those that were refused something may have their leases yet, under the names that they have proven.
    let is_named = shown.starts_with("0 nodes") || shown.contains(" auditor ") || shown.contains(" cook ");
    assert!(shown.contains(" nodes, served for ") && is_named && mistakes.is_empty(), "{shown} {mistakes}");
    let (shown, mistakes) = looks("cook");
    assert!(shown.is_empty() && mistakes.contains("node 'cook' may not look at other nodes"), "{shown} {mistakes}");
    let server_name = format!("{} --tls-server-name elsewhere", ground.node("teller"));
    let said = refused(ground.path(), &bench(&address, &server_name));
    assert!(said.contains("is not accepted") && said.contains("elsewhere"), "{said}");
    let (served, _) = ended(server);
    assert_eq!((number(&served, "commits"), number(&served, "denied") > 1), (24, true), "{served}");
    assert!(number(&served, "refused") >= 2, "{served}");
}

#[test]
fn a_node_that_speaks_tls_is_told_of_a_server_that_does_not() {
    let ground = Ground::new();
    let (server, address) = processes::serve(ground.path(), "127.0.0.1:0");
    let said = refused(ground.path(), &bench(&address, &ground.node("teller")));
    assert!(said.contains("does not speak TLS"), "{said}");
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn grants_and_certificates_change_without_a_restart() {
    let ground = Ground::new();
    let (server, address) = ground.serve("127.0.0.1:0");
    let credentials = ground.node("teller");
    let stays =
        Process::start(ground.path(), &format!("node --join {address} --load debit-credit --json {credentials}"));
    std::thread::sleep(Duration::from_secs(1));
    write(&ground.path().join("grants.toml"), "[node.cook]\nwrite = [\"*\"]\n");
    // The one that works has to join again, and may nothing any more.
    let gone = stays.end();
    assert_eq!(gone.code, Some(1), "{}", gone.output);
    assert!(gone.error.contains("'teller' may not"), "{}", gone.error);
    let report = printed(ground.path(), &bench(&address, &ground.node("cook")));
    assert_eq!(number(&serde_json::from_str(&report).expect("JSON"), "transactions"), 20);
    // A new authority: its nodes are let in, and those of the former one are not.
    let former = ground.node("cook");
    Authority::named("next").issue(ground.path(), &["server", "127.0.0.1"]);
    std::thread::sleep(Duration::from_secs(4));
    std::fs::copy(ground.path().join("server.authority"), ground.path().join("cook.authority")).expect("a file");
    let said = refused(ground.path(), &bench(&address, &former));
    assert!(said.contains("UnknownCA"), "{said}");
    let (_, error) = ended(server);
    assert!(error.contains("grants.toml") && error.contains("new connections use the new ones"), "{error}");
}

#[test]
fn what_is_served_off_the_loopback_needs_all_of_it() {
    let ground = Ground::new();
    let mistaken = |line: &str| {
        let ended = Process::start(ground.path(), line).end();
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.error);
        ended.error
    };
    for line in [
        "node --serve 0.0.0.0:0 --data bank",
        "node --join 192.0.2.1:7171",
        "bench debit-credit --join 192.0.2.1:7171",
        "node --join 127.0.0.1:7171 --listen 192.0.2.1:0",
    ] {
        let said = mistaken(line);
        assert!(said.contains("without TLS and mutual authentication"), "{line}: {said}");
    }
    let said = mistaken(&format!("node --serve 0.0.0.0:0 --data bank {}", ground.server));
    assert!(said.contains("--grants"), "{said}");
    let said = mistaken(&format!("node --join 192.0.2.1:7171 {}", ground.server));
    assert!(said.contains("--listen"), "{said}");
    let said = mistaken(&format!("bench debit-credit --data bank {}", ground.server));
    assert!(said.contains("--join"), "{said}");
    mistaken("node --serve 127.0.0.1:0 --data bank --tls-key server.key");
    mistaken("node --serve 127.0.0.1:0 --data bank --grants grants.toml");
    write(&ground.path().join("wrong.toml"), "[node.teller]\nwrite = [\"acount\"]\n");
    let said =
        refused(ground.path(), &format!("node --serve 127.0.0.1:0 --data bank --grants wrong.toml {}", ground.server));
    assert!(said.contains("'acount'") && said.contains("'teller'"), "{said}");
    write(&ground.path().join("wrong.toml"), "[node.teller]\nwrites = []\n");
    let said =
        refused(ground.path(), &format!("node --serve 127.0.0.1:0 --data bank --grants wrong.toml {}", ground.server));
    assert!(said.contains("wrong.toml") && said.contains("writes"), "{said}");
}

/// An address of this machine that is none of its loopback, if it has one.
fn off_loopback() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent for that.
    socket.connect("192.0.2.1:9").ok()?;
    let found = socket.local_addr().ok()?.ip();
    (!found.is_loopback() && TcpListener::bind((found, 0)).is_ok()).then_some(found)
}

#[test]
fn a_database_is_served_off_the_loopback() {
    let Some(ip) = off_loopback() else {
        return println!("skipped: this machine has no address but the loopback's");
    };
    let mut ground = Ground::new();
    ground.server = ground.authority.issue(ground.path(), &["server", &ip.to_string()]);
    let (server, address) = ground.serve(&format!("{ip}:0"));
    let line = format!("{} --listen {ip}:0", bench(&address, &ground.node("teller")));
    assert_eq!(number(&serde_json::from_str(&printed(ground.path(), &line)).expect("JSON"), "transactions"), 20);
    let (served, _) = ended(server);
    assert_eq!(number(&served, "joined"), 1);
}

/// A record of a handshake whose message is announced to be as long as can be, so that the server has to keep all that comes of it.
fn unfinished_hello(is_first: bool) -> Vec<u8> {
    const LENGTH: usize = 16_000;
    let mut record = vec![0; 5 + LENGTH];
    record[..3].copy_from_slice(&[22, 3, 1]);
    record[3..5].copy_from_slice(&(LENGTH as u16).to_be_bytes());
    if is_first {
        record[5..9].copy_from_slice(&[1, 0, 0xff, 0xff]);
    }
    record
}

#[test]
fn strangers_whose_handshakes_never_end_cost_a_server_little_memory() {
    const STRANGERS: usize = 400;
    let ground = Ground::new();
    let (mut server, address) = ground.serve("127.0.0.1:0");
    let node = bench(&address, &ground.node("teller"));
    printed(ground.path(), &node);
    let before = server.resident_kib();
    let (mut most, mut sent, mut strangers) = (before, 0, Vec::new());
    for _ in 0..STRANGERS {
        let Ok(mut stream) = TcpStream::connect(&address) else { break };
        stream.set_write_timeout(Some(Duration::from_millis(20))).expect("a socket can");
        let records = (0..64).map(|number| unfinished_hello(number == 0));
        sent += records.map_while(|record| stream.write_all(&record).ok()).count();
        strangers.push(stream);
        most = most.max(server.resident_kib());
        assert!(server.is_running(), "it has ended");
    }
    println!("{} strangers, {sent} records: {before} KiB before, {most} KiB at most", strangers.len());
    assert!(strangers.len() > 64 && sent > STRANGERS, "{} strangers, {sent} records", strangers.len());
    assert!(most < before + (16 << 10), "{before} KiB before, {most} KiB at most");
    printed(ground.path(), &node);
    drop(strangers);
    let (served, said) = ended(server);
    assert_eq!(number(&served, "joined"), 2);
    assert!(said.len() < 4_096, "{said}");
}
