//! One line on the terminal that says how far a command is.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The progress line of a command, on standard error; silent where that is no terminal. It goes away when dropped.
pub struct Progress(ProgressBar);

/// Says how far a phase is, from a task of the engine's.
pub struct Steps(ProgressBar);

impl Steps {
    /// As [`Progress::step`].
    pub fn step(&self, name: &'static str, steps: u64, total: u64) {
        step(&self.0, name, steps, total);
    }
}

impl Progress {
    /// Shows the line of the command `name`.
    pub fn start(name: &'static str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::hidden();
        }
        let bar = ProgressBar::new(0).with_prefix(name);
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(bar)
    }

    /// A line that is never seen.
    pub fn hidden() -> Progress {
        Progress(ProgressBar::hidden())
    }

    /// Begins a phase of `total` steps; with 0 its length is unknown.
    pub fn phase(&self, name: &'static str, total: u64) {
        phase(&self.0, name, total);
    }

    /// Reports that `steps` of `total` steps of the phase `name` are done; the first call begins the phase.
    pub fn step(&self, name: &'static str, steps: u64, total: u64) {
        step(&self.0, name, steps, total);
    }

    /// What says how far a phase is, from elsewhere.
    pub fn steps(&self) -> Steps {
        Steps(self.0.clone())
    }

    /// Reports that `steps` of the phase's steps are done.
    pub fn advance_to(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Says how it goes, where there is no end to come to.
    pub fn say(&self, how: String) {
        if self.0.length() != Some(0) {
            self.phase("", 0);
        }
        self.0.set_message(how);
    }

    /// Says on standard error what is configured and gains nothing.
    pub fn warn(&self, warnings: &[String]) {
        warnings.iter().for_each(|warning| self.warner()(warning));
    }

    /// What says a warning above the line, also from elsewhere and after its end.
    pub fn warner(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let bar = self.0.clone();
        move |warning| bar.suspend(|| eprintln!("Warning: {warning}"))
    }

    /// Says on standard error what has come of the steps so far, above the line: a command that is ended has said it.
    pub fn tell(&self, what: &str) {
        self.0.suspend(|| eprintln!("{what}\n"));
    }

    /// How long it has been since the line was made, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether nothing is seen of the line.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Takes the line away.
    pub fn finish(self) {
        self.0.finish_and_clear();
    }
}

fn phase(bar: &ProgressBar, name: &'static str, total: u64) {
    let known = "{prefix}: {msg} [{bar:30}] {percent:>3} %, {human_pos} of {human_len}, {eta} left";
    let unknown = "{prefix}: {msg} {spinner} {elapsed}";
    let template = if total > 0 { known } else { unknown };
    let style = ProgressStyle::with_template(template).expect("the templates are valid constants");
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(name);
    bar.set_length(total);
    bar.reset();
}

fn step(bar: &ProgressBar, name: &'static str, steps: u64, total: u64) {
    if bar.message() != name || bar.length() != Some(total) {
        phase(bar, name, total);
    }
    bar.set_position(steps);
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_can_be_shown() {
        let progress = Progress(ProgressBar::hidden());
        progress.phase("loading", 10);
        progress.advance_to(3);
        assert_eq!((progress.0.position(), progress.0.length()), (3, Some(10)));
        progress.step("reading", 4, 7);
        progress.step("reading", 5, 7);
        assert_eq!((progress.0.position(), progress.0.length()), (5, Some(7)));
        progress.phase("opening", 0);
        assert_eq!((progress.0.position(), progress.0.message().as_str()), (0, "opening"));
    }
}
