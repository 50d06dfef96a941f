//! What was run already: a file of one result a line, so that a search can go on where another ended.

use super::runs::is_generated;
use crate::{Failure, files};
use plan::{Candidate, Figures};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Results by what was run.
#[derive(Default)]
pub struct State {
    known: BTreeMap<String, Figures>,
    file: Option<(std::fs::File, String)>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    figures: Figures,
}

impl State {
    /// The results of this file, which is made if it is missing; without one nothing is kept.
    pub fn open(path: Option<&Path>) -> Result<State, Failure> {
        let Some(path) = path else { return Ok(State::default()) };
        let mut state = State::default();
        let mut text = if path.exists() { files::read_text(path)? } else { String::new() };
        if !text.is_empty() && !text.ends_with('\n') {
            // The line that an interrupted search was writing.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            files::replace(path, text.as_bytes())?;
        }
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line).map_err(|error| {
                let place = format!("{}:{}", path.display(), number + 1);
                format!("{place}: this is no result of a plan: {error}; name another file or remove it")
            })?;
            state.known.insert(line.key, line.figures);
        }
        state.file = Some((files::append(path)?, path.display().to_string()));
        Ok(state)
    }

    /// What a run gave, if it was made.
    pub fn figures(&self, key: &str) -> Option<&Figures> {
        self.known.get(key)
    }

    /// Keeps what a run gave.
    pub fn keep(&mut self, key: String, figures: &Figures) -> Result<(), Failure> {
        if let Some((file, name)) = &mut self.file {
            let line = serde_json::to_string(&Line { key: key.clone(), figures: figures.clone() })?;
            writeln!(file, "{line}").map_err(|error| format!("'{name}' cannot be written: {error}"))?;
        }
        self.known.insert(key, figures.clone());
        Ok(())
    }
}

/// Hashes of the files of traces, by their names.
pub type TraceHashes = BTreeMap<String, u64>;

/// Hashes of the files that candidates replay.
pub fn trace_hashes<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Result<TraceHashes, Failure> {
    let mut hashes = TraceHashes::new();
    for name in candidates.filter_map(Candidate::trace).filter(|name| !is_generated(name)) {
        if !hashes.contains_key(name) {
            hashes.insert(name.to_owned(), hash(&files::read(Path::new(name))?));
        }
    }
    Ok(hashes)
}

/// What tells a run from all others: a hash of all that its figures depend on. How many times larger the database is than what is run, how much
/// memory there is for it, and for how many bytes drives are rated, is not in the setting.
pub fn key(candidate: &Candidate, divisor: u64, size: (bool, u64), traces: &TraceHashes) -> String {
    let machine = &candidate.machine;
    let rated = machine.places.iter().map(|(name, place)| (name, place.capacity, place.rated_writes));
    let memory = (machine.memory, machine.reserve, candidate.whole.buffer.size);
    let told = (divisor, size, machine.cost_per_month(), memory, rated.collect::<Vec<_>>());
    let mut all = format!("{} {told:?} {:?}", env!("CARGO_PKG_VERSION"), candidate.setting);
    // A trace is named in the setting, and what its file holds may have changed.
    if let Some(contents) = candidate.trace().and_then(|name| traces.get(name)) {
        all += &format!(" {contents:x}");
    }
    format!("{:016x}", hash(all.as_bytes()))
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
