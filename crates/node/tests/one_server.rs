//! A database has one page server at a time: two would not know of each other's locks and copies.

use crate::machines::Machines;
use engine::{Database, Error, Internals, PartitionSpec, Settings, buffer, log};
use entresol_node::channel::Plain;
use entresol_node::page_server::{PageServer, ServerSettings};
use executor::Executor;
use std::net::SocketAddr;
use std::rc::Rc;

async fn serve_twice(executor: Executor, [first, second]: [SocketAddr; 2], durable: bool) {
    let buffer = buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() };
    let settings =
        Settings { buffer, log: log::Settings { durable, ..log::Settings::default() }, ..Settings::default() };
    let database = Database::create(&executor, settings).await.expect("the medium is empty");
    database.create_partition(PartitionSpec::b_tree("texts")).await.expect("there is room");
    let serve = async |address| {
        let settings = ServerSettings { has_leases: true, ..ServerSettings::default() };
        PageServer::serve(&database, Rc::new(Plain(executor.for_users())), address, settings).await
    };
    let server = serve(first).await.expect("the port is free");
    assert_eq!(database.log().durable(), database.log().end(), "no later server takes the number of its sessions");
    let refused = serve(second).await.err();
    assert!(matches!(&refused, Some(Error::Setting(why)) if why.contains("has a page server")), "{refused:?}");
    server.close();
    assert!(serve(second).await.is_ok(), "the first one has ended");
}

#[test]
fn a_second_page_server_is_refused_until_the_first_has_ended() {
    for durable in [true, false] {
        let machines = Machines::new(1);
        let executor = machines.server();
        let address = machines.address(0);
        let other = SocketAddr::new(address.ip(), address.port() + 1);
        executor.run(serve_twice(executor.clone(), [address, other], durable)).expect("it goes on");
        executor.stop();
    }
}
