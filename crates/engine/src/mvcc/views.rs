//! Who reads at moments of the past, and what is kept for that.

use crate::engine::Engine;
use crate::version::View;
use base::Lsn;
use std::fmt;
use std::rc::Rc;

/// Somebody reads at a moment, perhaps only for one call.
pub(crate) struct Viewing {
    pub view: View,
    /// The engine, if what is seen is kept for this alone.
    held: Option<Rc<Engine>>,
}

impl Viewing {
    /// A view whose snapshot somebody else holds.
    pub(crate) fn of(view: View) -> Viewing {
        Viewing { view, held: None }
    }

    /// A view of its own.
    pub(crate) fn held(engine: &Rc<Engine>, view: View) -> Viewing {
        enter_snapshot(engine, view.at);
        Viewing { view, held: Some(engine.clone()) }
    }
}

impl fmt::Debug for Viewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        if let Some(engine) = &self.held {
            engine.versions.leave_snapshot(self.view.at);
        }
    }
}

/// Somebody reads at moments of the past from now on.
pub(crate) fn want_versions(engine: &Engine) {
    engine.versions.want(engine.records(), || engine.transactions.registry.borrow().undo_lists());
}

/// From the opening on, if moments can be travelled to for a time.
pub(crate) fn keep_moments(engine: &Engine) {
    if engine.versions.keep_moments() {
        want_versions(engine);
    }
}

/// Somebody reads as of `at` from now on.
pub(crate) fn enter_snapshot(engine: &Engine, at: Lsn) {
    engine.versions.enter_snapshot(at);
    want_versions(engine);
}

/// A transaction reads without locks from now on.
pub(crate) fn enter_reader(engine: &Engine) {
    engine.versions.enter_reader();
    want_versions(engine);
}
