//! Which parts of a page a transaction of a node may write.

use crate::counting::{Joined, PAGE_SIZE, joined};
use base::PageId;
use engine::Error;
use executor::Executor;

#[test]
fn a_part_that_does_not_lie_behind_a_pages_header_is_refused_by_name() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((5, "cbl"), 40, |settings| settings);
    let client = clients[0].clone();
    let page = PageId::new(counters, 0);
    let written = executors[1].spawn(async move {
        let mut tx = client.begin().await;
        for (offset, length) in [(0, 8), (31, 1), (PAGE_SIZE as u16 - 1, 2), (u16::MAX, 1)] {
            let refused = tx.write(page, offset, &vec![7; length]).await;
            assert!(
                matches!(&refused, Err(Error::Argument(words)) if words.contains(&page.to_string())),
                "{length} bytes at {offset}: {refused:?}"
            );
        }
        tx.write(page, 32, &[9]).await?;
        tx.write(page, PAGE_SIZE as u16 - 1, &[9]).await?;
        tx.commit().await
    });
    assert_eq!(cluster.run(written).expect("they go on"), Ok(()));
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}
