//! Registered procedures: transactions that callers name, with their parameters as bytes.

use engine::{Database, Error, Result, Transaction};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + 'a>>;
type Body = dyn Fn(Database, Vec<u8>) -> Answer<'static>;

/// Procedures by name. Each runs as one transaction, again if it was a deadlock's victim.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{Procedures, PartitionSpec};
/// let store = entresol::open(directory)?;
/// let mut procedures = Procedures::new();
/// procedures.register("remember", async |tx, parameters| {
///     let notes = tx.database().partition("notes")?;
///     tx.put(notes, parameters, b"noted").await?;
///     Ok(Vec::new())
/// });
/// store.run(async |database| {
///     database.create_partition(PartitionSpec::b_tree("notes")).await?;
///     procedures.call(database, "remember", b"milk").await
/// })?;
/// # drop(store);
/// # Ok::<(), entresol::OpenError>(())
/// ```
#[derive(Clone, Default)]
pub struct Procedures {
    bodies: BTreeMap<String, Rc<Body>>,
}

impl Procedures {
    /// No procedures.
    pub fn new() -> Procedures {
        Procedures::default()
    }

    /// Adds a procedure, in place of one of this name.
    pub fn register(
        &mut self,
        name: &str,
        body: impl AsyncFn(&mut Transaction, &[u8]) -> Result<Vec<u8>> + 'static,
    ) -> &mut Procedures {
        let body = Rc::new(body);
        let run = move |database: Database, parameters: Vec<u8>| -> Answer<'static> {
            let body = Rc::clone(&body);
            Box::pin(async move { database.transaction(async |tx| body(tx, &parameters).await).await })
        };
        self.bodies.insert(name.to_owned(), Rc::new(run));
        self
    }

    /// Runs a procedure.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is none of this name, or the procedure's.
    pub async fn call(&self, database: &Database, name: &str, parameters: &[u8]) -> Result<Vec<u8>> {
        let Some(body) = self.bodies.get(name) else {
            let known: Vec<&str> = self.bodies.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::Setting(format!("there is no procedure '{name}'; registered are: {known}")));
        };
        body(database.clone(), parameters.to_vec()).await
    }
}
