//! Nodes as processes of their own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed, and waited for, should its test end before it does.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// How a process has ended, and what it has printed since it was last looked at.
pub struct Ended {
    pub code: Option<i32>,
    #[allow(dead_code, reason = "not every test reads it")]
    pub output: String,
    pub error: String,
}

impl Process {
    pub fn start(directory: &Path, line: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.current_dir(directory).args(line.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Process { child, output }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        line.trim_end().to_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Its number.
    #[allow(dead_code, reason = "not every test asks")]
    pub fn number(&self) -> u32 {
        self.child.id()
    }

    /// It is gone from one moment to the next.
    #[allow(dead_code, reason = "not every test does")]
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// The memory that it has in use, in KiB.
    #[allow(dead_code, reason = "not every test asks")]
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has memory");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("every system has it").success());
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let (mut output, mut error) = (String::new(), String::new());
        let began = Instant::now();
        while self.is_running() {
            assert!(began.elapsed() < Duration::from_secs(120), "it goes on and on");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.output.read_to_string(&mut output).expect("UTF-8");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut error).expect("UTF-8");
        Ended { code: self.child.wait().expect("it has ended").code(), output, error }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// What a command prints, and says of mistakes, that is fed these lines.
#[allow(dead_code, reason = "not every test feeds one")]
pub fn fed(directory: &Path, line: &str, lines: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).args(line.split(' '));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A server of the database in the directory `bank`, and where it listens.
#[allow(dead_code, reason = "not every test has one")]
pub fn serve(directory: &Path, address: &str) -> (Process, String) {
    let mut server = Process::start(directory, &format!("node --serve {address} --data bank"));
    let line = server.line();
    let Some(address) = line.strip_prefix("serving 'bank' at ") else {
        let Ended { error, .. } = server.end();
        panic!("it does not serve: {line} {error}");
    };
    let address = address.to_owned();
    (server, address)
}
