//! What TLS costs on the loopback: answers of 4 KiB, with 1 and with 64 requests outstanding, plain and sealed in turn.
//!
//! `cargo run --release -p entresol-tls --example sealed_cost`

#[allow(dead_code, reason = "the other example has more to do with it")]
mod loopback;

use loopback::ground::Authority;
use loopback::{Answers, echo};

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::named("ours");
    let [server, client] = ["server", "client"].map(|name| directory.path().join(name));
    authority.issue(&server, &["server", "127.0.0.1"]);
    authority.issue(&client, &["client"]);
    for outstanding in [1, 64] {
        for round in 1..=5 {
            for (name, server, client) in [("plain", None, None), ("TLS", Some(&*server), Some(&*client))] {
                let rate = echo(Answers::Bytes, outstanding, server, client);
                let [at_server, at_client] = rate.cpu_us;
                println!(
                    "{outstanding:>2} outstanding, round {round}, {name:<5}: {:>9.0} answers/s, CPU {at_server:.2} us at the server, \
                     {at_client:.2} us at the client",
                    rate.answers_per_second
                );
            }
        }
    }
}
