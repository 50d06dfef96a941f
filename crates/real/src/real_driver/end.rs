use super::{RealDriver, wall_clock};

impl Drop for RealDriver {
    /// Waits for what is under way on its files: buffers are the kernel's until then, and the locks keep others out.
    fn drop(&mut self) {
        let start = wall_clock();
        self.end_exchanges();
        let files_rest = self.file_workers.stop_within(self.patience);
        let transfers_rest = self.mechanism.shut_down(self.patience.saturating_sub(start.elapsed()));
        self.close_unseen();
        if !(files_rest && transfers_rest) {
            self.flights.leak();
            self.sockets.leak();
            std::mem::forget(std::mem::take(&mut self.files));
            self.locks.keep_for_good();
        }
    }
}
