//! Bugs that are planted for a test.
#![cfg(feature = "canary")]

use entresol_engine::canary::{Canary, plant};

/// Fails unless the test does while this bug is planted.
pub fn is_found(canary: Canary, test: fn()) {
    plant(Some(canary));
    let found = std::panic::catch_unwind(test);
    plant(None);
    assert!(found.is_err(), "nothing notices {canary:?}");
}
