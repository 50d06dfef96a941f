//! What the memories of idle clients are worth to one that works, on the machines of Franklin, Carey and Livny 1992.

mod described_machines;

use described_machines::{measured, read_only};
use entresol_workload::page_server::{PageServerModel, Pattern};

#[test]
fn idle_clients_save_reads_of_the_disk() {
    let reads = |algorithm| {
        let model = PageServerModel { working: Some(1), ..read_only(algorithm, Pattern::Uniform) };
        measured(&model, 4, [150, 50]).disk_reads_per_commit
    };
    let [forwarding, sending, passing] = ["fwd", "fwd-s", "n-chance"].map(reads);
    assert!(2.0 * passing < forwarding && 2.0 * passing < sending, "{forwarding}, {sending}, {passing}");
}
