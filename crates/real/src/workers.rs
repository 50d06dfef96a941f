//! Threads that take jobs from one queue.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Up to `limit` threads that do jobs in the order of their arrival. A thread is started when a job waits and none is idle.
pub(crate) struct Workers<J: Send + 'static> {
    name: &'static str,
    limit: usize,
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<J> {
    queue: Mutex<Queue<J>>,
    arrival: Condvar,
    /// Told when the last job that was begun has ended.
    rest: Condvar,
    work: Box<dyn Fn(J) + Send + Sync>,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    idle: usize,
    /// Jobs that threads have begun.
    begun: usize,
    closed: bool,
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, Queue<J>> {
        // No job runs under the lock, so a panic cannot leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.begun += 1;
                drop(queue);
                (self.work)(job);
                queue = self.lock();
                queue.begun -= 1;
                if queue.begun == 0 {
                    self.rest.notify_all();
                }
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.arrival.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

impl<J: Send + 'static> Workers<J> {
    /// Workers without threads yet. `work` must not panic.
    pub(crate) fn new(name: &'static str, limit: usize, work: impl Fn(J) + Send + Sync + 'static) -> Workers<J> {
        let queue = Mutex::new(Queue { jobs: VecDeque::new(), idle: 0, begun: 0, closed: false });
        let shared = Arc::new(Shared { queue, arrival: Condvar::new(), rest: Condvar::new(), work: Box::new(work) });
        Workers { name, limit: limit.max(1), shared, threads: Vec::new() }
    }

    /// Queues these jobs.
    pub(crate) fn push(&mut self, jobs: impl IntoIterator<Item = J>) {
        let mut queue = self.shared.lock();
        queue.jobs.extend(jobs);
        let waiting = queue.jobs.len();
        let idle = queue.idle;
        drop(queue);
        for _ in 0..waiting.min(idle) {
            self.shared.arrival.notify_one();
        }
        let missing = waiting.saturating_sub(idle).min(self.limit - self.threads.len());
        for _ in 0..missing {
            if !self.start_thread() {
                break;
            }
        }
    }

    /// Starts one more thread. If the system has none left, those that run do the work; without any it is done here.
    fn start_thread(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name(self.name.to_owned()).spawn(move || shared.serve()) {
            Ok(thread) => self.threads.push(thread),
            Err(_) if self.threads.is_empty() => {
                while let Some(job) = self.take_first() {
                    (self.shared.work)(job);
                }
                return false;
            }
            Err(_) => return false,
        }
        true
    }

    fn take_first(&self) -> Option<J> {
        self.shared.lock().jobs.pop_front()
    }

    /// Takes back the first waiting job that `matches`; a job that a thread has begun is not waiting.
    pub(crate) fn take_back(&self, matches: impl Fn(&J) -> bool) -> Option<J> {
        let mut queue = self.shared.lock();
        let position = queue.jobs.iter().position(matches)?;
        queue.jobs.remove(position)
    }

    /// The largest number of threads.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Forgets waiting jobs and begins nothing more.
    fn close(&self) {
        let waiting = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(waiting);
        self.shared.arrival.notify_all();
    }

    /// Forgets waiting jobs and waits for those begun, at most for `patience`. False if some go on: their threads are left to
    /// themselves.
    pub(crate) fn stop_within(&mut self, patience: Duration) -> bool {
        self.close();
        let queue = self.shared.lock();
        let waited = self.shared.rest.wait_timeout_while(queue, patience, |queue| queue.begun > 0);
        let is_over = waited.unwrap_or_else(PoisonError::into_inner).0.begun == 0;
        if !is_over {
            self.threads.clear();
        }
        is_over
    }

    /// Forgets waiting jobs and waits for those begun; the threads end.
    fn stop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            // A panic inside a thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl<J: Send + 'static> Drop for Workers<J> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_job_is_done_once_by_no_more_threads_than_allowed() {
        let (sender, done) = mpsc::channel();
        let mut workers = Workers::new("test", 3, move |job: u32| sender.send(job).expect("the test listens"));
        for first in (0..1000).step_by(10) {
            workers.push(first..first + 10);
        }
        let mut seen: Vec<u32> = (0..1000).map(|_| done.recv_timeout(Duration::from_secs(10)).expect("done")).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
        assert!((1..=3).contains(&workers.threads.len()));
    }

    #[test]
    fn a_waiting_job_can_be_taken_back_and_a_begun_one_cannot() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, done) = mpsc::channel();
        let gate = Mutex::new(gate);
        let mut workers = Workers::new("test", 1, move |job: u32| {
            sender.send(job).expect("the test listens");
            let _ = gate.lock().map(|gate| gate.recv());
        });
        workers.push([1, 2]);
        assert_eq!(done.recv_timeout(Duration::from_secs(10)), Ok(1));
        assert_eq!(workers.take_back(|job| *job == 1), None);
        assert_eq!(workers.take_back(|job| *job == 2), Some(2));
        drop(go);
        drop(workers);
        assert!(done.recv().is_err());
    }

    #[test]
    fn jobs_that_were_begun_are_waited_for_and_those_that_never_end_are_not() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, begun) = mpsc::channel();
        let gate = Mutex::new(gate);
        let mut workers = Workers::new("test", 1, move |(): ()| {
            sender.send(()).expect("the test listens");
            let _ = gate.lock().map(|gate| gate.recv());
        });
        workers.push([(), ()]);
        begun.recv_timeout(Duration::from_secs(10)).expect("one is begun");
        assert!(!workers.stop_within(Duration::from_millis(5)));
        drop(go);
        assert!(workers.stop_within(Duration::from_secs(10)));
        drop(workers);
        assert!(begun.recv().is_err(), "the other one was not begun");
    }
}
