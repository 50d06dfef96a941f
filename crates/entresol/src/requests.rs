//! The requests of handles, each in a task of its own on the engine's thread.

use crate::calls::Calls;
use crate::reply::{Answers, Promise, Wakes};
use driver::Work;
use engine::{Database, Error, Internals, Result};
use executor::{CatchPanic, Executor, Panic, TaskId, catch_panic, panic_message};
use node::page_client::PageClient;
use node::page_server::PageServer;
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A request under way.
struct Running {
    /// The slot of its answer, by which it is named.
    place: usize,
    /// The task that runs it, from its first step on.
    task: Option<TaskId>,
    /// Whether it is to end where it waits.
    is_cancelled: bool,
}

/// What the requests of a thread are about.
pub(crate) enum Host {
    /// A database, and what serves its pages to the nodes of this process, if there are any.
    Engine(Database, RefCell<Option<PageServer>>),
    /// A node of a database.
    Node(PageClient),
}

/// What runs requests.
pub(crate) struct Requests {
    pub executor: Executor,
    host: Host,
    running: RefCell<Vec<Option<Running>>>,
    /// Indices of `running` that are not in use.
    free: RefCell<Vec<usize>>,
    count: Cell<usize>,
    /// Those that call procedures.
    pub calls: Rc<Calls>,
    /// Told of every request that ends.
    pub answers: Rc<Answers>,
}

impl Requests {
    /// None yet.
    pub fn new(host: Host, executor: &Executor, wakes: &Wakes) -> Rc<Requests> {
        let (running, free, count) = (RefCell::default(), RefCell::default(), Cell::new(0));
        let executor = executor.of_library();
        let answers = Answers::new(&executor, wakes);
        let requests = Rc::new(Requests { executor, host, running, free, count, calls: Rc::default(), answers });
        let those = Rc::downgrade(&requests);
        requests.executor.name_workers(move |place| those.upgrade()?.task_of(place));
        requests
    }

    /// The task that runs the request of this name, if it has begun.
    fn task_of(&self, place: usize) -> Option<TaskId> {
        self.running.borrow().iter().flatten().find(|request| request.place == place)?.task
    }

    /// The database of the handles that are a database's.
    pub fn database(&self) -> &Database {
        let Host::Engine(database, _) = &self.host else { unreachable!("a node's handles ask for transactions") };
        database
    }

    /// The node of the handles that are a node's.
    pub fn node(&self) -> &PageClient {
        let Host::Node(client) = &self.host else { unreachable!("a database's handles ask for no node") };
        client
    }

    /// What serves the database's pages.
    pub fn page_server(&self) -> Result<PageServer> {
        match &self.host {
            Host::Engine(_, server) => server.borrow().clone().ok_or(Error::Closed),
            Host::Node(_) => Err(Error::Closed),
        }
    }

    /// Its pages are served no more.
    pub fn close_page_server(&self) {
        if let Host::Engine(_, server) = &self.host {
            server.take().inspect(PageServer::close);
        }
    }

    fn panicked(&self, what: &str, panic: Panic) -> Error {
        match &self.host {
            Host::Engine(database, _) => database.panicked(what, panic),
            // What its transaction has changed is dropped with it.
            Host::Node(_) => Error::Panicked { what: what.to_owned(), message: panic_message(&*panic).to_owned() },
        }
    }

    /// How many are under way.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Runs a request; `what` names it should its code panic. Its answer is the promise's.
    pub fn run<T: Send + 'static, E: From<Error> + Send + 'static>(
        self: &Rc<Self>,
        what: &'static str,
        promise: Promise<Result<T, E>>,
        work: impl Future<Output = Result<T, E>> + 'static,
    ) {
        self.executor.spawn(self.job(what, self.enter(promise.place()), promise, work));
    }

    /// What runs a request that has been entered.
    pub fn job<T: Send + 'static, E: From<Error> + Send + 'static, F: Future<Output = Result<T, E>>>(
        self: &Rc<Self>,
        what: &'static str,
        entry: usize,
        promise: Promise<Result<T, E>>,
        work: F,
    ) -> impl Future<Output = ()> + use<T, E, F> {
        Job { work: catch_panic(work), promise: Some(promise), requests: Rc::clone(self), entry, what }
    }

    /// Counts a request whose answer goes to the slot of this name, and names it.
    pub fn enter(&self, place: usize) -> usize {
        self.count.set(self.count.get() + 1);
        let request = Some(Running { place, task: None, is_cancelled: false });
        let mut running = self.running.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(entry) => {
                running[entry] = request;
                entry
            }
            None => {
                running.push(request);
                running.len() - 1
            }
        }
    }

    fn leave(&self, entry: usize) {
        self.running.borrow_mut()[entry] = None;
        self.free.borrow_mut().push(entry);
        self.count.set(self.count.get() - 1);
        self.answers.tell(&self.executor);
    }

    /// Before each step of a request: whether it is to end. Notes its task.
    fn is_cancelled(&self, entry: usize) -> bool {
        let mut running = self.running.borrow_mut();
        let request = running[entry].as_mut().expect("it has not left");
        if request.task.is_none() {
            // Paid with the first step of what is asked for.
            self.executor.charge(Work::Request);
        }
        request.task = Some(self.executor.current());
        request.is_cancelled
    }

    /// Ends the request of this name, if it is under way; each of them if none is named. What it waits for is dropped at its
    /// next step.
    pub fn cancel(&self, place: Option<usize>) {
        for request in self.running.borrow_mut().iter_mut().flatten() {
            if place.is_none_or(|place| place == request.place) {
                request.is_cancelled = true;
                request.task.into_iter().for_each(|task| self.executor.wake(task));
            }
        }
    }
}

pin_project! {
    /// What the task of a request runs. An async block would hold the work twice, and that is long.
    struct Job<T, E, F> {
        #[pin]
        work: CatchPanic<F>,
        promise: Option<Promise<Result<T, E>>>,
        requests: Rc<Requests>,
        entry: usize,
        what: &'static str,
    }
}

impl<T, E, F> Future for Job<T, E, F>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: Future<Output = Result<T, E>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let job = self.project();
        if job.requests.is_cancelled(*job.entry) {
            *job.promise = None;
            // Here, where a panic of what it had ends no other request.
            if let Some(panic) = job.work.end() {
                let _told = job.requests.panicked(job.what, panic);
            }
        } else {
            let answer = match job.work.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(answer)) => answer,
                Poll::Ready(Err(panic)) => Err(job.requests.panicked(job.what, panic).into()),
            };
            let promise = job.promise.take().expect("a request is answered once");
            job.requests.answers.give(promise, answer);
        }
        job.requests.leave(*job.entry);
        Poll::Ready(())
    }
}
