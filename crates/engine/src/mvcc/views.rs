//! Read views: which moments are read, and which versions are kept for them.

use crate::engine::Engine;
use crate::version::View;
use base::Lsn;
use std::fmt;
use std::rc::Rc;

/// An open read view, perhaps for one call only.
pub(crate) struct ReadView {
    pub view: View,
    /// The engine, if what is seen is kept for this alone.
    held: Option<Rc<Engine>>,
}

impl ReadView {
    /// A view whose snapshot is held elsewhere.
    pub(crate) fn of(view: View) -> ReadView {
        ReadView { view, held: None }
    }

    /// A view of its own.
    pub(crate) fn held(engine: &Rc<Engine>, view: View) -> ReadView {
        enter_snapshot(engine, view.at);
        ReadView { view, held: Some(engine.clone()) }
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl Drop for ReadView {
    fn drop(&mut self) {
        if let Some(engine) = &self.held {
            engine.versions.leave_snapshot(self.view.at);
        }
    }
}

/// From now on versions are kept for read views.
pub(crate) fn want_versions(engine: &Engine) {
    engine.versions.want(engine.records(), || engine.transactions.registry.borrow().undo_lists());
}

/// From the opening on, if moments can be travelled to for a time.
pub(crate) fn keep_moments(engine: &Engine) {
    if engine.versions.keep_moments() {
        engine.core.log.keep_moments();
        want_versions(engine);
    }
}

/// A read view as of `at` is open from now on.
pub(crate) fn enter_snapshot(engine: &Engine, at: Lsn) {
    engine.versions.enter_snapshot(at);
    want_versions(engine);
}

/// One that has read so has ended.
pub(crate) fn leave_reader(engine: &Engine) {
    engine.versions.leave_reader();
}

/// A transaction reads without locks from now on.
pub(crate) fn enter_reader(engine: &Engine) {
    engine.versions.enter_reader();
    want_versions(engine);
}
