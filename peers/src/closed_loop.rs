//! Clients without think time, and the measurement of what they see.

use crate::bank::Scale;
use crate::cpu::cpu_time;
use crate::peer::{Engine, Grouping, PeerResult, Requests, Session};
use base::statistics::Histogram;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// How many threads [`Grouping::Lanes`] has: while one waits for its answers the others' requests are executed.
const LANES: usize = 4;

/// How often the measuring thread looks whether a client failed.
const LOOK: Duration = Duration::from_millis(50);

/// What was measured between the end of the warm-up and the end of the run.
#[derive(Debug)]
pub struct Measured {
    /// Response times as the clients saw them; their count is the number of transactions.
    pub responses: Histogram,
    /// The wall-clock time.
    pub elapsed: Duration,
    /// The CPU time of the whole process and of its children, user and system: clients, engine, the engine's background work.
    pub cpu: Duration,
}

/// A closed loop: each client waits for its answer and asks again at once.
pub struct ClosedLoop<R = Scale> {
    requests: R,
    clients: usize,
    seed: u64,
    warm_up: Duration,
    measured: Duration,
    began: Instant,
    phase: AtomicU8,
    next_sequence: AtomicU64,
}

struct Asked<R: Requests> {
    client: usize,
    request: R::Request,
}

/// A request with its answer.
type Answered<R> = (<R as Requests>::Request, <R as Requests>::Answer);

impl<R: Requests> ClosedLoop<R> {
    /// A loop of `clients` clients under `seed` whose requests are numbered from `first_sequence` on.
    pub fn new(
        requests: R,
        clients: usize,
        seed: u64,
        warm_up: Duration,
        measured: Duration,
        first_sequence: u64,
    ) -> ClosedLoop<R> {
        let phase = AtomicU8::new(WARM_UP);
        let next_sequence = AtomicU64::new(first_sequence);
        ClosedLoop { requests, clients, seed, warm_up, measured, began: Instant::now(), phase, next_sequence }
    }

    /// What the clients ask for.
    pub fn requests(&self) -> &R {
        &self.requests
    }

    /// The number that the next request would get: after a run, how many transactions were ever acknowledged if they were
    /// numbered from zero.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Relaxed)
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// Whether clients go on asking.
    pub fn goes_on(&self) -> bool {
        self.phase.load(Ordering::Relaxed) != OVER
    }

    /// Client `number` of the loop.
    pub fn terminal(&self, number: usize) -> R::Terminal {
        self.requests.terminal(self.seed, number)
    }

    /// Draws a client's next request, with its number and time stamp.
    pub fn request(&self, terminal: &mut R::Terminal) -> R::Request {
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        self.requests.next(terminal, sequence, self.began.elapsed().as_nanos() as u64)
    }

    /// Records an answered request if the run is being measured. A response time is counted from the request's time stamp.
    pub fn answered(&self, request: &R::Request, responses: &mut Histogram) {
        if self.phase.load(Ordering::Relaxed) == MEASURED {
            responses.record((self.began.elapsed().as_nanos() as u64).saturating_sub(R::time_ns(request)));
            self.requests.answered(request);
        }
    }

    /// Serves the clients with an engine of threads, grouped in the given way.
    ///
    /// # Errors
    /// The first error of the engine; the run ends with it.
    pub fn serve(&self, engine: &dyn Engine<R>, grouping: Grouping) -> PeerResult<Measured> {
        match grouping {
            Grouping::Single => self.time(|| self.play(engine, 0..1)),
            Grouping::Rounds => self.time(|| self.play(engine, 0..self.clients)),
            Grouping::Own => self.time(|| self.spread(engine, self.clients)),
            Grouping::Lanes => self.time(|| self.spread(engine, LANES.min(self.clients))),
            Grouping::Queue => self.time(|| self.queue(engine)),
        }
    }

    /// Measures `body`, which serves all clients and returns their response times. It runs on this thread until
    /// [`ClosedLoop::goes_on`] says no; the clocks are read by another.
    ///
    /// # Errors
    /// The error of `body`, or of the clock of the CPU.
    pub fn time(&self, body: impl FnOnce() -> PeerResult<Histogram>) -> PeerResult<Measured> {
        thread::scope(|scope| {
            let clocks = scope.spawn(|| self.clocks());
            let responses = self.watched(body)?;
            let (elapsed, cpu) = joined(clocks)?;
            Ok(Measured { responses, elapsed, cpu })
        })
    }

    /// Plays the clients on `threads` threads.
    fn spread(&self, engine: &dyn Engine<R>, threads: usize) -> PeerResult<Histogram> {
        thread::scope(|scope| {
            let first = |thread: usize| thread * self.clients / threads;
            let play = |thread| move || self.watched(|| self.play(engine, first(thread)..first(thread + 1)));
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(play(thread))).collect();
            merged(threads)
        })
    }

    /// Every client is a thread before a queue; this thread is the committer behind it.
    fn queue(&self, engine: &dyn Engine<R>) -> PeerResult<Histogram> {
        let (requests, queue) = channel();
        thread::scope(|scope| {
            let (mut threads, mut answers) = (Vec::new(), Vec::new());
            for number in 0..self.clients {
                let (answer, receiver) = sync_channel(1);
                answers.push(answer);
                let requests = requests.clone();
                threads.push(scope.spawn(move || self.ask(number, requests, receiver)));
            }
            // The committer ends when all clients have hung up; this sender is not used.
            drop(requests);
            self.drain(engine, queue, answers)?;
            merged(threads)
        })
    }

    /// Runs a client or committer; an error ends the run for all.
    fn watched(&self, body: impl FnOnce() -> PeerResult<Histogram>) -> PeerResult<Histogram> {
        let result = body();
        if result.is_err() {
            self.phase.store(OVER, Ordering::Relaxed);
        }
        result
    }

    /// Plays some clients on this thread: one request of each makes a transaction.
    fn play(&self, engine: &dyn Engine<R>, numbers: std::ops::Range<usize>) -> PeerResult<Histogram> {
        let mut session = engine.session()?;
        let mut terminals: Vec<_> = numbers.map(|number| self.terminal(number)).collect();
        let mut responses = Histogram::new();
        let mut batch = Vec::with_capacity(terminals.len());
        let mut answers = Vec::with_capacity(terminals.len());
        while self.goes_on() {
            batch.clear();
            batch.extend(terminals.iter_mut().map(|terminal| self.request(terminal)));
            commit(&mut *session, &batch, &mut answers)?;
            for request in &batch {
                self.answered(request, &mut responses);
            }
        }
        Ok(responses)
    }

    /// One client thread before a queue.
    fn ask(&self, client: usize, requests: Sender<Asked<R>>, answer: Receiver<Answered<R>>) -> PeerResult<Histogram> {
        let mut terminal = self.terminal(client);
        let mut responses = Histogram::new();
        while self.goes_on() {
            let request = self.request(&mut terminal);
            // The committer hangs up only if it failed; then its error is the one to report.
            let is_sent = requests.send(Asked { client, request }).is_ok();
            let Some((request, _)) = is_sent.then(|| answer.recv().ok()).flatten() else { break };
            self.answered(&request, &mut responses);
        }
        Ok(responses)
    }

    /// The committer behind a queue.
    fn drain(
        &self,
        engine: &dyn Engine<R>,
        queue: Receiver<Asked<R>>,
        replies: Vec<SyncSender<Answered<R>>>,
    ) -> PeerResult<()> {
        let mut session = engine.session()?;
        let (mut clients, mut batch, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        while let Ok(first) = queue.recv() {
            clients.clear();
            batch.clear();
            for asked in std::iter::once(first).chain(queue.try_iter()) {
                clients.push(asked.client);
                batch.push(asked.request);
            }
            commit(&mut *session, &batch, &mut answers)?;
            for ((client, request), answer) in clients.iter().zip(batch.drain(..)).zip(answers.drain(..)) {
                replies[*client].send((request, answer))?;
            }
        }
        Ok(())
    }

    /// Waits for the end of the warm-up and of the run, and reads both clocks in between.
    fn clocks(&self) -> PeerResult<(Duration, Duration)> {
        self.wait(self.warm_up);
        let (start, cpu_start) = (Instant::now(), cpu_time()?);
        self.advance(WARM_UP, MEASURED);
        self.wait(self.measured);
        self.advance(MEASURED, OVER);
        Ok((start.elapsed(), cpu_time()? - cpu_start))
    }

    /// Goes to the next phase unless a failure ended the run already.
    fn advance(&self, from: u8, to: u8) {
        // A failed exchange means that the run is over, which is where it shall stay.
        let _ = self.phase.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn wait(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while self.goes_on() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, PeerResult<T>>) -> PeerResult<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn merged(threads: Vec<ScopedJoinHandle<'_, PeerResult<Histogram>>>) -> PeerResult<Histogram> {
    let mut all = Histogram::new();
    for thread in threads {
        all.merge(&joined(thread)?);
    }
    Ok(all)
}

fn commit<R: Requests>(
    session: &mut dyn Session<R>,
    batch: &[R::Request],
    answers: &mut Vec<R::Answer>,
) -> PeerResult<()> {
    answers.clear();
    session.commit(batch, answers)?;
    assert_eq!(answers.len(), batch.len(), "every request has an answer");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Transfer;

    fn short(clients: usize) -> ClosedLoop {
        ClosedLoop::new(Scale(1), clients, 1, Duration::from_millis(30), Duration::from_millis(100), 5)
    }

    #[test]
    fn only_the_measured_phase_counts() {
        let clients = short(1);
        let mut asked = 0;
        let measured = clients.time(|| {
            let (mut terminal, mut responses) = (clients.terminal(0), Histogram::new());
            while clients.goes_on() {
                let transfer = clients.request(&mut terminal);
                thread::sleep(Duration::from_millis(1));
                clients.answered(&transfer, &mut responses);
                asked += 1;
            }
            Ok(responses)
        });
        let measured = measured.unwrap();
        assert!(measured.elapsed >= Duration::from_millis(100));
        assert!(measured.responses.count() > 0 && measured.responses.count() < asked);
        assert!(measured.responses.mean_ns() >= 1e6);
        assert_eq!(clients.next_sequence(), 5 + asked);
    }

    /// Fails after some commits.
    struct Failing(AtomicU64);

    impl Engine for Failing {
        fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
            Ok(Box::new(FailingSession(&self.0)))
        }
    }

    struct FailingSession<'a>(&'a AtomicU64);

    impl Session for FailingSession<'_> {
        fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
            if self.0.fetch_add(1, Ordering::Relaxed) >= 20 {
                return Err("the disk is gone".into());
            }
            balances.extend(transfers.iter().map(|transfer| transfer.delta));
            Ok(())
        }
    }

    #[test]
    fn an_error_ends_the_run_in_every_grouping() {
        for grouping in [Grouping::Own, Grouping::Queue, Grouping::Rounds, Grouping::Lanes, Grouping::Single] {
            let clients = ClosedLoop::new(Scale(1), 4, 1, Duration::ZERO, Duration::from_secs(3_600), 0);
            let error = clients.serve(&Failing(AtomicU64::new(0)), grouping).unwrap_err();
            assert_eq!(error.to_string(), "the disk is gone", "{grouping:?}");
        }
    }
}
