//! The server: an engine on media that are tortured, whose pages are served.

use super::ClusterShape;
use super::named::Named;
pub(super) use super::named::name_of;
use super::schedule::Rights;
use super::things;
use engine::{Database, Result};
use executor::Executor;
use node::grants::Grants;
use node::page_server::{PageServer, ServerSettings};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, MapDeserializer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// The database's name in what is said of it.
const NAME: &str = "cluster";

/// What each node may do, by number.
pub(super) type AllRights = BTreeMap<u32, Rights>;

/// A table of nodes, as an operator writes it.
pub(super) fn grants(rights: &AllRights, shares_names: bool) -> Grants {
    let granted = |Rights { write, read }: &Rights| {
        BTreeMap::from([("write".to_owned(), write.clone()), ("read".to_owned(), read.clone())])
    };
    let nodes: BTreeMap<String, _> =
        rights.iter().map(|(node, rights)| (name_of(*node, shares_names), granted(rights))).collect();
    let table = BTreeMap::from([("node".to_owned(), nodes)]).into_deserializer();
    Grants::deserialize::<MapDeserializer<'_, _, ValueError>>(table).expect("a table of nodes")
}

/// Creates the database.
pub(super) async fn create(executor: Executor, shape: ClusterShape) -> Result<()> {
    let database = Database::create(&executor, shape.settings()).await?;
    for spec in shape.partitions() {
        database.create_partition(spec).await?;
    }
    if shape.things > 0 {
        things::create_index(&database).await?;
    }
    database.close().await
}

/// Opens the database and serves its pages.
pub(super) async fn serve(
    executor: Executor,
    shape: ClusterShape,
    address: SocketAddr,
    rights: &RefCell<AllRights>,
) -> Result<(PageServer, Database)> {
    let database = Database::open(&executor, shape.settings(), NAME).await?;
    let settings = ServerSettings {
        algorithm: shape.algorithm,
        chances: shape.chances,
        message_size_min: 0,
        has_leases: true,
        grants: Some(grants(&rights.borrow(), shape.shares_names)),
    };
    let transport = Named { executor, at_once: shape.sends_at_once, shares_names: shape.shares_names };
    let transport = Rc::new(transport);
    let server = PageServer::serve(&database, transport, address, settings).await?;
    shape.snapshot_room.inspect(|room| server.set_snapshot_room(*room));
    // They may be others by now.
    server.grant(grants(&rights.borrow(), shape.shares_names))?;
    Ok((server, database))
}

/// Opens the database for the last time.
pub(super) async fn open(executor: &Executor, shape: &ClusterShape) -> Result<Database> {
    Database::open(executor, shape.settings(), NAME).await
}
