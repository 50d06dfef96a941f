//! Many transactions in one task, under a combinator that polls only the parts that were woken.

use crate::ground::machine::run;
use base::PartitionId;
use entresol_engine::{Database, Error, Isolation, PartitionSpec, Result, Settings, Transaction, buffer};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use virtual_driver::Media;

/// Whether a part was woken, and the task to tell.
struct Part {
    is_woken: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let parent = self.parent.lock().expect("not poisoned").clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

type Pinned<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Waits for all, as `join_all` does where there are more than thirty.
async fn all(futures: impl IntoIterator<Item = Pinned<'_>>) -> Result<()> {
    let part = || Arc::new(Part { is_woken: AtomicBool::new(true), parent: Mutex::new(None) });
    let mut parts: Vec<_> = futures.into_iter().map(|future| (future, part())).collect();
    std::future::poll_fn(|context| {
        let mut result = Ok(());
        parts.retain_mut(|(future, part)| {
            *part.parent.lock().expect("not poisoned") = Some(context.waker().clone());
            if !part.is_woken.swap(false, Ordering::SeqCst) {
                return true;
            }
            let waker = Waker::from(Arc::clone(part));
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(done) => {
                    result = std::mem::replace(&mut result, Ok(())).and(done);
                    false
                }
                Poll::Pending => true,
            }
        });
        if parts.is_empty() || result.is_err() { Poll::Ready(result) } else { Poll::Pending }
    })
    .await
}

/// Reads a record that few have in the buffer, then adds to one that all want.
async fn transact(database: &Database, tree: PartitionId, number: u64) -> Result<()> {
    let isolation = Isolation::ALL[number as usize % 3];
    let work = async |tx: &mut Transaction| {
        tx.get(tree, &(100 + number).to_be_bytes()).await?;
        tx.add(tree, &(number % 2).to_be_bytes(), 0..8, 1).await
    };
    database.transaction_at(isolation, work).await.map(|_| ())
}

#[test]
fn transactions_within_one_task_go_on_when_they_are_woken() {
    run(&Media::new(), async |executor| {
        let buffer = buffer::Settings { frames: 40, page_size: 1024, ..buffer::Settings::default() };
        let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        for number in 0..800_u64 {
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[0; 100]).await).await?;
        }
        all((0..120).map(|number| -> Pinned<'_> { Box::pin(transact(&database, tree, number)) })).await?;
        for number in 0..2_u64 {
            let sum = database.transaction(async |tx| tx.add(tree, &number.to_be_bytes(), 0..8, 0).await).await?;
            assert_eq!(sum, 60);
        }
        Ok::<(), Error>(())
    })
    .expect("nothing fails");
}
