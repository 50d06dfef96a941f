//! Closes of the server, as an operator does them.

use super::{ClusterScenario, Played};
use crate::cluster::schedule::Act;
use crate::cluster::{ClusterFault, ClusterStep};
use base::time::{MILLISECOND_NS, SECOND_NS};

/// How long a close of the server may take, in nanoseconds, and how often it is looked whether it is done.
const CLOSING_MAX_NS: u64 = 60 * SECOND_NS;
const CLOSING_LOOK_NS: u64 = MILLISECOND_NS;
/// Within this time a node is told by a server that is closed, in nanoseconds: before it says something itself, as it does in each third of a lease.
const TOLD_MAX_NS: u64 = 200 * MILLISECOND_NS;

impl ClusterScenario<'_> {
    /// Closes the server as an operator does: nodes are told, and its database is closed while they work.
    pub(super) fn close_server(&mut self, down_ns: u64) -> Played {
        let step = self.server_step();
        let (server, database) = (self.server.borrow().clone(), self.database.borrow().clone());
        let (Some(server), Some(database)) = (server, database) else { return Ok(()) };
        self.hit(ClusterFault::Closed, step);
        self.count();
        server.close();
        self.course.note_close();
        let closing = self.executors[0].spawn(async move { database.close().await });
        let end = self.cluster.now().plus_ns(CLOSING_MAX_NS);
        while !closing.is_finished() && self.cluster.now() < end {
            self.cluster.run_until(self.cluster.now().plus_ns(CLOSING_LOOK_NS))?;
        }
        if !closing.is_finished() {
            self.course.wrong(format!("the server is not closed within {} s", CLOSING_MAX_NS / SECOND_NS));
        } else if let Err(error) = self.cluster.run(closing)?
            && !self.course.is_of_failed_device(&error.to_string())
        {
            self.course.wrong(format!("closing the server: {error}"));
        }
        drop(server);
        self.end_server(ClusterFault::Closed);
        self.plan_after(down_ns, Act::StartServer { again_ns: None });
        Ok(())
    }

    /// When all is mended: the server is closed while nodes work, and its program goes on, so that they know it from what they are told and not
    /// from its end. Then it is started again.
    pub(super) fn close_beside_work(&mut self) -> Played {
        let Some(server) = self.server.borrow().clone() else { return Ok(()) };
        self.course.expect_commits(self.cluster.now());
        server.close();
        self.course.note_close();
        drop(server);
        let end = self.cluster.now().plus_ns(TOLD_MAX_NS);
        let untold = |scenario: &Self| -> Vec<u32> {
            (1..=scenario.course.shape.nodes).filter(|node| scenario.course.has_server(*node)).collect()
        };
        while !untold(self).is_empty() && self.cluster.now() < end {
            self.cluster.run_until(self.cluster.now().plus_ns(CLOSING_LOOK_NS))?;
        }
        for node in untold(self) {
            let step = self.course.step(node).map_or("does not run", ClusterStep::name);
            self.course.wrong(format!("node {node} is not told that its server was closed: it {step}"));
        }
        self.close_server(0)?;
        self.due.clear();
        self.start_server();
        Ok(())
    }
}
