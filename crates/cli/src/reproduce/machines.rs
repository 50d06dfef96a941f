//! The processes of a run over TCP, and what they count.

use super::machine::{Ask, MachineRole, Part, Said, Sighting};
use super::network::ShapedNetwork;
use crate::Failure;
use crate::files::Directory;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use workload::page_server::{ClientCounts, Figures, in_memory_ratio};

/// How often it is looked whether this process is to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long an answer is waited for, in nanoseconds.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long a process may take to end, in nanoseconds.
const FAREWELL_NS: u64 = 2_000_000_000;

/// An error if this process was asked to end.
pub fn go_on() -> Result<(), Failure> {
    if real_driver::is_end_requested() { Err("interrupted".into()) } else { Ok(()) }
}

/// Waits so long.
pub fn pause(ns: u64) -> Result<(), Failure> {
    pause_until(real_driver::wall_ns() + ns)
}

fn pause_until(end_ns: u64) -> Result<(), Failure> {
    loop {
        go_on()?;
        let left_ns = end_ns.saturating_sub(real_driver::wall_ns());
        if left_ns == 0 {
            return Ok(());
        }
        std::thread::park_timeout(LOOK.min(Duration::from_nanos(left_ns)));
    }
}

/// A process that ends when this is dropped, and also when this process dies.
struct Machine {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Machine {
    #[expect(clippy::disallowed_methods, reason = "several processes are heard at a time")]
    fn start(network: Option<&ShapedNetwork>, name: String, part: &Part) -> Result<Machine, Failure> {
        let program = std::env::current_exe()?;
        let mut command = network.map_or_else(|| Command::new(&program), |network| network.command(&program));
        command.args(["reproduce", papers::over_tcp::STUDY, "--machine"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let (output, input) = (child.stdout.take().expect("a pipe"), child.stdin.take());
        let (sender, said) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines.map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        let mut machine = Machine { name, child, input, said };
        machine.write(&serde_json::to_string(part)?)?;
        Ok(machine)
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{line}").map_err(|error| format!("{} is gone: {error}", self.name).into())
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), Failure> {
        self.write(&serde_json::to_string(ask)?)
    }

    /// Its next answer.
    fn answer(&self) -> Result<Said, Failure> {
        let end_ns = real_driver::wall_ns() + PATIENCE_NS;
        loop {
            go_on()?;
            match self.said.recv_timeout(LOOK) {
                Ok(line) => match serde_json::from_str(&line)? {
                    Said::Failed(why) => return Err(format!("{} has failed: {why}", self.name).into()),
                    said => return Ok(said),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{} has ended", self.name).into()),
                Err(RecvTimeoutError::Timeout) if real_driver::wall_ns() > end_ns => {
                    return Err(format!("{} has not answered for half a minute", self.name).into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn seen(&self) -> Result<Sighting, Failure> {
        match self.answer()? {
            Said::Seen(seen) => Ok(*seen),
            _ => Err(format!("{} answers what was not asked", self.name).into()),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.input.take());
        let end_ns = real_driver::wall_ns() + FAREWELL_NS;
        while matches!(self.child.try_wait(), Ok(None)) && real_driver::wall_ns() < end_ns {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        let _gone_already = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// What a run is.
pub struct RunOverTcp<'a> {
    pub experiment: &'a str,
    pub quick: bool,
    pub point: usize,
    pub seed: u64,
    pub clients: u32,
    /// Whether misses of the server are forwarded to other clients.
    pub forwards: bool,
    pub warm_up_ns: u64,
    pub measured_ns: u64,
    pub batches: u32,
    /// The network's name, and what it carries in a second, in bytes.
    pub network: (&'a str, f64),
}

/// What a run has given.
pub struct RanOverTcp {
    /// Of each batch.
    pub reports: Vec<Value>,
    /// CPU time of all processes while it was measured, in nanoseconds.
    pub cpu_ns: u64,
    /// Messages that they sent meanwhile.
    pub messages: u64,
}

/// The processes of a run: all end when this is dropped, the clients first.
struct Machines {
    clients: Vec<Machine>,
    server: Machine,
    _directory: Directory,
}

/// What all processes have counted until a moment, the server first.
type Look = Vec<Sighting>;

impl RunOverTcp<'_> {
    /// Starts the processes, warms up and measures.
    pub fn run(&self, network: Option<&ShapedNetwork>) -> Result<RanOverTcp, Failure> {
        let mut machines = self.start(network)?;
        pause(self.warm_up_ns)?;
        let mut looks = vec![machines.look()?];
        let began_ns = looks[0][0].at_ns;
        for batch in 1..=u64::from(self.batches) {
            pause_until(began_ns + self.measured_ns * batch / u64::from(self.batches))?;
            looks.push(machines.look()?);
        }
        let (first, last) = (&looks[0], &looks[looks.len() - 1]);
        let of = |count: fn(&Sighting) -> u64| {
            let pairs = first.iter().zip(last);
            pairs.map(|(first, last)| count(last) - count(first)).sum::<u64>()
        };
        Ok(RanOverTcp {
            reports: looks.windows(2).map(|pair| self.report(&pair[0], &pair[1])).collect(),
            cpu_ns: of(|seen| seen.cpu_ns),
            messages: of(|seen| seen.client.messages + seen.server.messages),
        })
    }

    fn start(&self, network: Option<&ShapedNetwork>) -> Result<Machines, Failure> {
        // Where files are memory the described device is the slower one at all times.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { Directory::beneath(memory)? } else { Directory::new()? };
        let part = |role| Part {
            experiment: self.experiment.to_owned(),
            quick: self.quick,
            point: self.point,
            seed: self.seed,
            role,
        };
        let role = MachineRole::Server { directory: directory.path().to_owned() };
        let server = Machine::start(network, "the server".to_owned(), &part(role))?;
        let mut machines = Machines { clients: Vec::new(), server, _directory: directory };
        let Said::Serving { address, pages } = machines.server.answer()? else {
            return Err("the server answers what was not asked".into());
        };
        for number in 0..self.clients {
            let role = MachineRole::Client { number, server: address, pages };
            machines.clients.push(Machine::start(network, format!("client {}", number + 1), &part(role))?);
        }
        let mut names = Vec::new();
        for client in &machines.clients {
            match client.answer()? {
                Said::Joined(name) => names.push(name),
                _ => return Err(format!("{} answers what was not asked", client.name).into()),
            }
        }
        machines.server.ask(&Ask::Count(names))?;
        machines.clients.iter_mut().try_for_each(|client| client.ask(&Ask::Begin))?;
        Ok(machines)
    }

    /// What was done from one look to the next, as a described run reports it.
    fn report(&self, first: &Look, last: &Look) -> Value {
        let server = last[0].server.since(first[0].server);
        let seconds = |index: usize| (last[index].at_ns - first[index].at_ns) as f64 / 1e9;
        let (mut clients, mut throughput_per_s) = (ClientCounts::default(), 0.0);
        for index in 1..last.len() {
            let client = last[index].client.since(first[index].client);
            throughput_per_s += client.commits as f64 / seconds(index);
            clients = clients.plus(client);
        }
        let resident: Vec<Vec<bool>> = last[1..].iter().map(Sighting::resident).collect();
        let in_memory = in_memory_ratio(&last[0].resident(), &resident, self.forwards);
        let figures = Figures::of((&clients, &server), throughput_per_s, in_memory);
        let carried = (clients.bytes + server.bytes) as f64 / seconds(0) / self.network.1;
        let cpu_ns: u64 = first.iter().zip(last).map(|(first, last)| last.cpu_ns - first.cpu_ns).sum();
        json!({
            "throughput_per_s": figures.throughput_per_s,
            "response_us": { "mean": figures.response_ns_mean / 1e3 },
            "transactions": figures.transactions,
            "aborts": figures.victims,
            "utilization": [{ "name": format!("network.{}", self.network.0), "utilization": carried }],
            "seconds": seconds(0),
            "cpu_us_per_transaction": cpu_ns as f64 / 1e3 / figures.transactions.max(1) as f64,
            "page_server": figures,
        })
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // All clients end at once, and the server behind them.
        self.clients.iter_mut().for_each(|client| drop(client.input.take()));
    }
}

impl Machines {
    /// What all have counted until now.
    fn look(&mut self) -> Result<Look, Failure> {
        self.server.ask(&Ask::Look)?;
        self.clients.iter_mut().try_for_each(|client| client.ask(&Ask::Look))?;
        [&self.server].into_iter().chain(&self.clients).map(Machine::seen).collect()
    }
}
