//! A database that is closed while transactions are under way, and then opened again.

use crate::ClientEvent;
use crate::context::RunContext;
use crate::run::WORK_MAX_NS;
use base::time::MICROSECOND_NS;
use engine::server::TransactionServer;
use engine::{Database, Error};
use std::rc::Rc;

/// Has the database closed at some moment, in some runs, unless all clients are done by then. What its server has under way has a short time
/// to end. With its close the run is over.
pub fn spawn(context: &Rc<RunContext>, database: &Database, server: Option<&TransactionServer>) {
    let mut random = context.random("closed at work");
    if !context.configuration.haste || !random.chance(0.3) {
        return;
    }
    let (context, database, server) = (Rc::clone(context), database.clone(), server.cloned());
    context.executor.clone().spawn(async move {
        let after_ns = (1 << random.below(17)) * MICROSECOND_NS;
        context.executor.sleep_ns(random.below(after_ns)).await;
        if context.over.get() || context.working.get() == 0 {
            return;
        }
        context.is_closing.set(true);
        context.event(ClientEvent::ClosedAtWork);
        let closing = async {
            if let Some(server) = server {
                server.close_within(random.below(2_000) * MICROSECOND_NS).await;
            }
            database.close().await
        };
        match context.in_time(WORK_MAX_NS, "closing", closing).await {
            // A transaction that holds up a sweep ends with the close, which says so.
            Some(Ok(()) | Err(Error::Unended { .. })) | None => {}
            Some(Err(error)) => {
                context.judge(&error, "closing at work");
            }
        }
        context.over.set(true);
    });
}
