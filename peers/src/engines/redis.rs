//! Redis: a server that keeps everything in memory and appends each change to a file, here with one sync for all that it
//! executed since the last one (`appendfsync always`). Transactions are a Lua function on the server; clients pipeline calls of
//! it over a Unix socket.

use crate::bank::{HISTORY, MissingRow, Scale, Sums, Table, Transfer, row};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use redis::{Client, Connection, Pipeline, cmd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A row is a hash of its balance and its filler.
const LIBRARY: &str = r"#!lua name=bank
redis.register_function('transfer', function(keys, arguments)
    local balance = redis.call('HINCRBY', keys[1], 'b', arguments[1])
    redis.call('HINCRBY', keys[2], 'b', arguments[1])
    redis.call('HINCRBY', keys[3], 'b', arguments[1])
    redis.call('RPUSH', keys[4], arguments[2])
    return balance
end)";
/// Commands of one pipeline of the load, and rows of one of the sums.
const BATCH_ROWS: u64 = 10_000;
/// How long the server may take to answer first.
const START_MAX: Duration = Duration::from_secs(10);

/// A server of its own in the database's directory.
pub struct Redis {
    server: Child,
    client: Client,
    /// How many branches were loaded.
    scale: Scale,
}

impl Redis {
    /// Starts a server in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let directory = directory.canonicalize()?;
        let socket = socket(&directory);
        let sync = if durability == Durability::Sync { "always" } else { "no" };
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", sync])
            // Nothing is rewritten or compressed while it is measured, and rows stay as compact as they can be.
            .args(["--auto-aof-rewrite-percentage", "0", "--hash-max-listpack-value", "128", "--loglevel", "warning"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server does not start ({error}); install it (Debian: redis-server)"))?;
        let client = Client::open(format!("redis+unix://{}", socket.display()))?;
        let peer = Redis { server, client, scale: Scale(0) };
        let mut connection = peer.first_connection()?;
        let _: String = cmd("FUNCTION").arg("LOAD").arg(LIBRARY).query(&mut connection)?;
        Ok(Box::new(peer))
    }

    /// Waits until the server answers.
    fn first_connection(&self) -> PeerResult<Connection> {
        let end = Instant::now() + START_MAX;
        loop {
            match self.client.get_connection() {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// A socket's path is short; that of the benchmark's directory need not be.
fn socket(directory: &Path) -> PathBuf {
    let path = directory.join("socket");
    if path.as_os_str().len() < 100 { path } else { std::env::temp_dir().join(format!("redis-{}", std::process::id())) }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Its contents are not needed; waiting keeps it from writing into a directory that is being removed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn name(table: Table, id: u64) -> String {
    let letter = match table {
        Table::Account => 'a',
        Table::Teller => 't',
        Table::Branch => 'b',
    };
    format!("{letter}{id}")
}

impl Peer for Redis {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        let mut connection = self.client.get_connection()?;
        for table in Table::ALL {
            let rows = scale.rows(table);
            for first in (0..rows).step_by(BATCH_ROWS as usize) {
                let mut pipeline = Pipeline::new();
                for id in first..rows.min(first + BATCH_ROWS) {
                    pipeline.cmd("HSET").arg(name(table, id)).arg("b").arg(0).arg("f").arg(&row(id)[8..]).ignore();
                }
                pipeline.query::<()>(&mut connection)?;
            }
        }
        self.scale = scale;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        let mut connection = self.client.get_connection()?;
        let mut sums = Sums::default();
        for table in Table::ALL {
            let rows = self.scale.rows(table);
            for first in (0..rows).step_by(BATCH_ROWS as usize) {
                let mut pipeline = Pipeline::new();
                for id in first..rows.min(first + BATCH_ROWS) {
                    pipeline.cmd("HGET").arg(name(table, id)).arg("b");
                }
                let balances: Vec<Option<i64>> = pipeline.query(&mut connection)?;
                for (id, balance) in (first..).zip(balances) {
                    *sums.of_mut(table) += balance.ok_or(MissingRow { table, id })?;
                }
            }
        }
        let rows: u64 = cmd("LLEN").arg(HISTORY).query(&mut connection)?;
        for first in (0..rows).step_by(BATCH_ROWS as usize) {
            let last = first + BATCH_ROWS - 1;
            let rows: Vec<Vec<u8>> = cmd("LRANGE").arg(HISTORY).arg(first).arg(last).query(&mut connection)?;
            rows.iter().for_each(|row| sums.add_history(&row[8..]));
        }
        Ok(sums)
    }
}

impl Engine for Redis {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(RedisSession { connection: self.client.get_connection()? }))
    }
}

struct RedisSession {
    connection: Connection,
}

impl Session for RedisSession {
    /// Each transfer is a transaction of its own; they share a sync.
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let mut pipeline = Pipeline::with_capacity(transfers.len());
        for transfer in transfers {
            pipeline.cmd("FCALL").arg("transfer").arg(4);
            for (table, id) in transfer.rows() {
                pipeline.arg(name(table, id));
            }
            let mut record = transfer.sequence.to_be_bytes().to_vec();
            record.extend_from_slice(&transfer.history_row());
            pipeline.arg(HISTORY).arg(transfer.delta).arg(record);
        }
        balances.extend(pipeline.query::<Vec<i64>>(&mut self.connection)?);
        Ok(())
    }
}
