//! Pages that a node asks for ahead: for no transaction, as a scan does.

use super::{Node, Said};
use base::PageId;
use entresol_node::message::{Copy, Transaction};

impl Node {
    /// Asks for a page that is neither here nor on its way, and that its transaction does not use.
    pub fn ask_ahead(&mut self, page: PageId) -> Vec<Said> {
        let is_here = self.memory.contains_key(&page) || self.protocol.is_coming(page);
        if is_here || self.protocol.user(page).is_some() || !self.may_step() {
            return Vec::new();
        }
        self.make_room();
        let secret = self.draw_secret();
        let (message, forgotten) = self.protocol.request((page, secret), Transaction::NONE, false);
        forgotten.map(|copy| self.kept.remove(&copy));
        vec![Said::Server(message)]
    }

    /// A page that was asked for ahead does not come.
    pub(super) fn do_without(&mut self, copy: Copy) -> Vec<Said> {
        let (_, forgotten) = self.protocol.would_block(copy);
        forgotten.map(|copy| self.kept.remove(&copy));
        self.wait_no_more(copy.page);
        Vec::new()
    }
}
