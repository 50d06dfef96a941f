//! How a report came about: command, release, machine and day.

use papers::Extent;
use papers::report::Head;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The head of a report that is made now, by this process.
pub fn head(extent: Extent) -> Head {
    let words = std::env::args().skip(1).map(|word| if word.contains(' ') { format!("'{word}'") } else { word });
    let command = std::iter::once("entresol".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    let version = format!("entresol {}", env!("CARGO_PKG_VERSION"));
    Head { command, version, extent, machine: machine(), date: date() }
}

/// The processor and the kernel, as far as the system tells.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let line = |file: &str, key: &str| {
        let text = text_of(file)?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.rsplit(": ").next().unwrap_or(line).trim().to_owned())
    };
    let processor = line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kernel =
        line("/proc/sys/kernel/osrelease", "").map_or_else(String::new, |release| format!(", Linux {release}"));
    format!("{processor}, {cores} cores{kernel}")
}

#[expect(clippy::disallowed_methods, reason = "what the system says of itself is no file of a database")]
fn text_of(file: &str) -> Option<String> {
    String::from_utf8(std::fs::read(file).ok()?).ok()
}

/// The present minute, in UTC.
#[expect(clippy::disallowed_methods, reason = "a report names the day on which it was made, after all runs")]
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let minute = UNIX_EPOCH + Duration::from_secs(seconds / 60 * 60);
    humantime::format_rfc3339_seconds(minute).to_string().replace('T', " ").replace(":00Z", " UTC")
}
