//! A network of its own for processes of this machine: a namespace whose loopback is one medium, at the rate of the kernel's token bucket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes of a packet, as on an Ethernet.
const PACKET: u64 = 1_500;
/// What the system adds to a TCP packet on the loopback, in bytes: Ethernet's header, IP's, and TCP's with a time stamp.
const HEADERS: u64 = 14 + 20 + 32;
/// A bucket holds what the network carries in a ten thousandth of a second, for timers of the kernel are that exact, or a packet with its
/// headers and what is lost in rounding.
const BUCKETS_PER_S: u64 = 10_000;
const BUCKET_MIN: u64 = PACKET + 100;

/// Why there is no such network.
#[derive(Debug)]
pub enum NetworkError {
    /// A program that this needs cannot be started.
    Program {
        /// Which.
        name: String,
        error: io::Error,
    },
    /// The system does not do it.
    Refused {
        /// What was asked.
        command: String,
        /// What it has said.
        said: String,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = "a network of its own, with the rate of the study's, cannot be had here";
        let how = "or give --unshaped to run over this machine's loopback as it is";
        match self {
            NetworkError::Program { name, error } => write!(
                formatter,
                "{what}: '{name}' cannot be started ({error}); install it (packages util-linux and iproute2), {how}"
            ),
            NetworkError::Refused { command, said } => write!(
                formatter,
                "{what}: '{command}' says: {said}; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), {how}"
            ),
        }
    }
}

impl std::error::Error for NetworkError {}

/// The network. It is gone when the last process in it is: the one that holds it ends with its standard input, so when this is dropped and
/// also when this process dies.
pub struct ShapedNetwork {
    holder: Child,
}

impl ShapedNetwork {
    /// One medium that carries this number of bytes a second. Headers of packets are not counted: messages have the study's lengths.
    pub fn new(bytes_per_s: u64) -> Result<ShapedNetwork, NetworkError> {
        let network = ShapedNetwork { holder: hold()? };
        let packet = PACKET.to_string();
        // Packets are cut before they are counted.
        network.set(&["ip", "link", "set", "dev", "lo", "mtu", &packet, "gso_max_segs", "1", "up"])?;
        let rate = format!("{}bit", bytes_per_s * 8);
        let burst = (bytes_per_s / BUCKETS_PER_S).max(BUCKET_MIN).to_string();
        let overhead = format!("-{HEADERS}");
        let table = ["root", "handle", "1:", "stab", "overhead", &overhead, "linklayer", "ethernet"];
        let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", "16mb"];
        let device = ["tc", "qdisc", "add", "dev", "lo"];
        network.set(&[&device[..], &table, &bucket].concat())?;
        Ok(network)
    }

    /// A command that starts a program in this network.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--"]).arg(program);
        command
    }

    /// Does this in the network. Returns what it has printed.
    fn set(&self, words: &[&str]) -> Result<String, NetworkError> {
        let mut command = self.command(Path::new(words[0]));
        let output = command.args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| NetworkError::Program { name: "nsenter".to_owned(), error })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(NetworkError::Refused { command: words.join(" "), said })
    }
}

/// A process in a network of its own, which ends with its standard input.
fn hold() -> Result<Child, NetworkError> {
    let mut command = Command::new("unshare");
    command.args(["--net", "cat"]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut holder = command.spawn().map_err(|error| NetworkError::Program { name: "unshare".to_owned(), error })?;
    // It is there when it answers.
    let mut answer = String::new();
    let mut input = holder.stdin.take().expect("a pipe");
    let written = writeln!(input, "there");
    let output = holder.stdout.as_mut().expect("a pipe");
    let read = BufReader::new(output).read_line(&mut answer);
    if written.is_err() || !matches!(read, Ok(length) if length > 0) {
        let mut said = String::new();
        let _unread = holder.stderr.take().expect("a pipe").read_to_string(&mut said);
        let _waited = holder.wait();
        return Err(NetworkError::Refused { command: "unshare --net cat".to_owned(), said: said.trim().to_owned() });
    }
    holder.stdin = Some(input);
    Ok(holder)
}

impl Drop for ShapedNetwork {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _gone_already = self.holder.kill();
        let _waited = self.holder.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it takes rights that this process lacks, that is what it says.
    #[test]
    fn a_network_has_its_rate_and_is_gone_with_its_holder() {
        let network = match ShapedNetwork::new(10_000_000) {
            Ok(network) => network,
            Err(error) => return assert!(error.to_string().contains("--unshaped"), "{error}"),
        };
        let bucket = network.set(&["tc", "qdisc", "show", "dev", "lo"]).expect("it can be asked");
        assert!(bucket.contains("tbf") && bucket.contains("rate 80Mbit"), "{bucket}");
        let links = network.set(&["ip", "-oneline", "link"]).expect("it can be asked");
        assert_eq!(links.lines().count(), 1, "it has nothing but its loopback: {links}");
        let holder = format!("/proc/{}", network.holder.id());
        assert!(Path::new(&holder).exists());
        let refused = network.set(&["tc", "qdisc", "add", "dev", "lo", "root", "nonsense"]).expect_err("there is none");
        assert!(matches!(&refused, NetworkError::Refused { command, .. } if command.contains("nonsense")), "{refused}");
        drop(network);
        assert!(!Path::new(&holder).exists());
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = "unshare failed: Operation not permitted".to_owned();
        let refused = NetworkError::Refused { command: "unshare --net cat".to_owned(), said }.to_string();
        assert!(refused.contains("as root") && refused.contains("--unshaped"), "{refused}");
        let error = io::Error::from(io::ErrorKind::NotFound);
        let missing = NetworkError::Program { name: "unshare".to_owned(), error }.to_string();
        assert!(missing.contains("util-linux") && missing.contains("--unshaped"), "{missing}");
    }
}
