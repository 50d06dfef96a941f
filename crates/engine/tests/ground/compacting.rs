// Partitions that are compacted, and what is known of them.

use super::{backups, cut_machine};
use base::{PartitionId, Random};
use driver::Halt;
use entresol_engine::{Database, Error, Result, Transaction};
use executor::{Executor, JoinHandle};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use virtual_driver::{Media, PowerCut};

/// The records of a partition.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts records in one transaction.
pub async fn put(database: &Database, id: PartitionId, records: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let put = async |tx: &mut Transaction| {
        for (key, value) in records {
            tx.put(id, key, value).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(put).await
}

/// Deletes the records of these keys, `together` of them in each transaction.
pub async fn delete(
    database: &Database,
    id: PartitionId,
    keys: &[Vec<u8>],
    together: usize,
    model: &mut Records,
) -> Result<()> {
    for keys in keys.chunks(together) {
        let delete = async |tx: &mut Transaction| {
            for key in keys {
                tx.delete(id, key).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(delete).await?;
        keys.iter().for_each(|key| drop(model.remove(key)));
    }
    Ok(())
}

/// Three clients that change records of a model beside compactions.
pub struct ClientsBeside<M> {
    model: Rc<RefCell<M>>,
    is_over: Rc<Cell<bool>>,
    clients: Vec<JoinHandle<()>>,
}

impl<M: Clone> ClientsBeside<M> {
    /// Each gets the model, whether it is to end, and a seed of its own.
    pub fn begin<F: Future<Output = ()> + 'static>(
        executor: &Executor,
        model: M,
        seed: u64,
        client: impl Fn(Rc<RefCell<M>>, Rc<Cell<bool>>, u64) -> F,
    ) -> ClientsBeside<M> {
        let (model, is_over) = (Rc::new(RefCell::new(model)), Rc::new(Cell::new(false)));
        let begin = |number| executor.spawn(client(Rc::clone(&model), Rc::clone(&is_over), 3 * seed + number));
        let clients = (0..3).map(begin).collect();
        ClientsBeside { model, is_over, clients }
    }

    /// Has them end; what they have made of the model.
    pub async fn end(self) -> M {
        self.is_over.set(true);
        for client in self.clients {
            client.join().await;
        }
        self.model.borrow().clone()
    }
}

/// What was found is what is known, and a check finds nothing.
pub async fn check<K: Ord + Debug, V: PartialEq>(
    database: &Database,
    found: BTreeMap<K, V>,
    model: &BTreeMap<K, V>,
) -> Result<()> {
    assert_eq!(found.len(), model.len());
    assert!(found == *model, "a record has another value");
    let checked = database.check(|_| {}).await?;
    assert!(checked.is_clean(), "{:?}", checked.findings);
    Ok(())
}

/// Runs `work` until the power goes at this event, or it ends: then false.
pub fn until_cut(media: &Media, event: u64, work: impl AsyncFnOnce(&Executor) -> Result<()>) -> bool {
    let result = cut_machine::run_up_to(media, backups::hardware(), Some(event), work);
    assert!(matches!(&result, Ok(Ok(())) | Err(Halt::PowerCut)), "{result:?}");
    media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 0.5, torn: 0.3 });
    result.is_err()
}
