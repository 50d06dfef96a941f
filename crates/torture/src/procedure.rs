//! Debit-Credit as a registered procedure, for logs of procedure calls.

use crate::configuration::Configuration;
use crate::debit_credit::{Partitions, changes};
use crate::ledger::Transfer;
use engine::{Error, Procedures};
use std::rc::Rc;

/// The procedure's name. Its parameters are a transfer as history has it.
pub const TRANSFER: &str = "transfer";

/// The procedures that the databases of a scenario are opened with.
pub fn procedures(configuration: &Rc<Configuration>) -> Procedures {
    let configuration = Rc::clone(configuration);
    let mut procedures = Procedures::new();
    procedures.register(TRANSFER, async move |tx, parameters| {
        let (id, transfer) =
            Transfer::decode(parameters).ok_or_else(|| Error::Argument("these are no parameters".into()))?;
        let partitions = Partitions::of(tx.catalog())?;
        changes(&configuration, tx, partitions, id, transfer).await.map(|()| Vec::new())
    });
    procedures
}
