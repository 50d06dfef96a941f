use crate::configuration::ConfigurationError;
use crate::control::ElsewhereError;
use driver::{Fault, FaultKind, Halt};
use executor::Executor;
use std::pin::pin;
use thiserror::Error;

/// Why a database could not be opened or run.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// use entresol::{Error, OpenError};
///
/// std::fs::write(directory.join("letter.txt"), "dear reader").unwrap();
/// match entresol::open(directory) {
///     Err(OpenError::Engine(Error::NotADatabase { detail, .. })) => {
///         assert_eq!(detail, "it holds no file 'entresol.home'; name an empty directory or a database");
///     }
///     _ => panic!("something else lives here"),
/// }
/// ```
#[derive(Debug, Error)]
pub enum OpenError {
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The engine could not do what was asked.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// This machine refused something that the driver needs.
    #[error(transparent)]
    Machine(#[from] Fault),
    /// The configuration says that there are several nodes, which are started in another way than one engine.
    #[error(
        "[nodes] count = {count}: entresol::start_nodes or NodeThreads::start start several engines; Opening::nodes(1) has the database \
         opened with one"
    )]
    SeveralNodes {
        /// How many.
        count: u32,
    },
    /// The engine's thread has panicked. A panic in a request, or in a task that it has spawned, ends only these; one in what
    /// [`Opening::on_silence`] tells, nothing.
    ///
    /// [`Opening::on_silence`]: crate::Opening::on_silence
    #[error("the engine's thread panicked: {message}; what was committed is there when the database is opened again")]
    Panicked {
        /// What the panic says.
        message: String,
    },
    /// The program that has the database open has not done what it was asked for.
    #[error(transparent)]
    Elsewhere(#[from] ElsewhereError),
    /// The described machine came to a halt.
    #[error("{}", halted(.0))]
    Halted(Halt),
}

impl From<Halt> for OpenError {
    fn from(halt: Halt) -> OpenError {
        OpenError::Halted(halt)
    }
}

/// Runs this to its end. A machine that has stopped since a device leaves a request unanswered tells which.
pub(crate) fn run<F: Future>(executor: &Executor, future: F) -> Result<F::Output, OpenError> {
    run_telling(executor, future, |_| {})
}

/// The same; `tell` hears of a failure before what has run is dropped, and with it the answers that it owes.
pub(crate) fn run_telling<F: Future>(
    executor: &Executor,
    future: F,
    tell: impl FnOnce(&OpenError),
) -> Result<F::Output, OpenError> {
    let mut future = pin!(future);
    let ran = executor.run(future.as_mut()).map_err(|halt| match (halt, executor.overdue()) {
        (Halt::Unanswered, Some(late)) => {
            let detail =
                "longer than [driver] answer_at_most: the database is given up; see to the device, then open it again";
            Fault::new(FaultKind::TimedOut, format!("{late}, {detail}")).into()
        }
        _ => halt.into(),
    });
    ran.inspect_err(tell)
}

fn halted(halt: &Halt) -> &'static str {
    match halt {
        Halt::PowerCut => "the power of the described machine was cut",
        Halt::Unanswered => {
            "a device has left a request unanswered for longer than [driver] answer_at_most: open the database again"
        }
        Halt::Nested => "the engine's tasks run already: await the future instead of running it",
        Halt::Idle => "the run waits for something that nothing can bring about; please report this as a defect",
    }
}
