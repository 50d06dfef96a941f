//! Long values that a commit gives up, and readers of the past may want.

use crate::engine::Engine;
use structures::lock::Owner;
use structures::organization::b_tree::stored;

/// Before a commit that gives long values up: copies those that versions refer to, whose pages are freed soon.
/// Where one cannot be read, the commit goes on, and snapshots from before it are given up.
pub(crate) async fn keep_long_values(engine: &Engine, owner: Owner) {
    let is_tree = |partition| engine.catalog.partitions.borrow().is_tree(partition);
    while engine.versions.is_kept() {
        let referred = engine.versions.versions().borrow().long_value((owner, 0), is_tree);
        let Some((number, partition, length, first)) = referred else { return };
        let fetched = engine.core.fetch(partition, length, first).await;
        if engine.versions.versions().borrow().long_value((owner, 0), is_tree) != referred {
            // The readers that it was for have gone meanwhile, and perhaps others have come.
            continue;
        }
        let Ok(value) = fetched else {
            engine.versions.versions().borrow_mut().note_incomplete(owner);
            return;
        };
        let mut whole = Vec::new();
        stored::store_here(&value, &mut whole);
        engine.versions.versions().borrow_mut().replace(owner, number, &whole);
    }
}
