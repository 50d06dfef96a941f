use super::measured::Hits;
use super::{CONTROL_MESSAGE, ClientCounts, PAGE_INSTRUCTIONS, PageReference, PageServerModel, references};
use base::{PageId, PartitionId, Random};
use engine::{Error, Result, buffer};
use executor::Executor;
use node::page_client::{ClientSettings, PageClient};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// How a client works that others reach at `address`.
pub fn client_settings(model: &PageServerModel, page_size: usize, address: SocketAddr) -> ClientSettings {
    ClientSettings {
        buffer: buffer::Settings {
            frames: model.client_pages as usize,
            page_size,
            cleaner: false,
            ..buffer::Settings::default()
        },
        address,
        message_size_min: CONTROL_MESSAGE,
        transactions: 1,
        keeps_write_locks: false,
        commits_pages: model.commits_pages,
        lock_wait_ns_max: None,
        patience_ns: 0,
    }
}

/// What clients have done that share this.
#[derive(Default)]
pub struct ClientTotals {
    commits: Cell<u64>,
    victims: Cell<u64>,
    response_ns: Cell<u64>,
    hits: Hits,
    failure: RefCell<Option<Error>>,
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

impl ClientTotals {
    /// What was counted; messages are counted elsewhere.
    pub fn counts(&self) -> ClientCounts {
        let [[hot_misses, hot_hits], [cold_misses, cold_hits]] = self.hits.counts();
        ClientCounts {
            commits: self.commits.get(),
            victims: self.victims.get(),
            response_ns: self.response_ns.get(),
            hot_hits,
            hot_misses,
            cold_hits,
            cold_misses,
            messages: 0,
            bytes: 0,
        }
    }

    /// Why one of them has ended.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Forgets what was counted.
    pub(super) fn restart(&self) {
        self.hits.restart();
        [&self.commits, &self.victims, &self.response_ns].into_iter().for_each(|cell| cell.set(0));
    }
}

/// What the processing of a page takes a client.
#[derive(Clone, Copy, Debug)]
pub enum Processing {
    /// Its described CPU.
    Cpu,
    /// Its time, as a CPU of this many million instructions a second takes it, while other clients have this machine's CPUs.
    Asleep {
        /// Million instructions a second.
        mips: f64,
    },
}

/// The load of a client: transactions, one after the other.
pub struct ClientLoad {
    model: PageServerModel,
    client: u32,
    pages: PartitionId,
    random: Random,
    /// Of what pages take and what is written to them: a victim that is run again draws that again, and what is referenced behind it
    /// stays the same under every algorithm.
    work: Random,
    processing: Processing,
    /// How much longer it has slept than it was to, in nanoseconds: it sleeps less the next time.
    overslept_ns: u64,
}

/// The first byte behind a page's header.
const FIRST_BYTE: u16 = engine::page::header::HEADER_SIZE as u16;

impl ClientLoad {
    /// Of the client with this number, counted from 0, on the pages of this partition.
    pub fn new(
        model: &PageServerModel,
        client: u32,
        pages: PartitionId,
        (seed, processing): (u64, Processing),
    ) -> ClientLoad {
        let [random, work] = ["client", "processing"].map(|what| Random::stream(seed, &format!("{what} {client}")));
        ClientLoad { model: model.clone(), client, pages, random, work, processing, overslept_ns: 0 }
    }

    /// Runs transactions until one fails.
    pub async fn run(mut self, executor: Executor, client: PageClient, totals: Rc<ClientTotals>) {
        loop {
            let drawn = references(self.model.pattern, self.model.write_probability, self.client, &mut self.random);
            let began = executor.now();
            loop {
                match self.transaction(&executor, &client, &totals, &drawn).await {
                    Ok(()) => break,
                    Err(Error::Deadlock) => add(&totals.victims, 1),
                    Err(error) => {
                        totals.failure.borrow_mut().get_or_insert(error);
                        return;
                    }
                }
            }
            add(&totals.commits, 1);
            add(&totals.response_ns, executor.now().since_ns(began));
        }
    }

    async fn transaction(
        &mut self,
        executor: &Executor,
        client: &PageClient,
        totals: &ClientTotals,
        drawn: &[PageReference],
    ) -> Result<()> {
        let mut transaction = client.begin().await;
        for reference in drawn {
            let page = PageId::new(self.pages, reference.page);
            let (_, was_here) = transaction.read(page, |_| ()).await?;
            totals.hits.count(self.model.pattern.is_hot(self.client, reference.page), was_here);
            self.process(executor).await;
            if reference.writes {
                let number = self.work.word().to_le_bytes();
                transaction.write(page, FIRST_BYTE, &number).await?;
                self.process(executor).await;
            }
        }
        executor.pay_debt().await;
        transaction.commit().await
    }

    /// The processing of a page.
    async fn process(&mut self, executor: &Executor) {
        let instructions = self.work.exponential(PAGE_INSTRUCTIONS).round();
        match self.processing {
            Processing::Cpu => {
                executor.charge_instructions(instructions as u64);
                executor.pay_debt().await;
            }
            Processing::Asleep { mips } => self.sleep(executor, (instructions * 1e3 / mips) as u64).await,
        }
    }

    /// Sleeps for so long in the mean: a system wakes sleepers late.
    async fn sleep(&mut self, executor: &Executor, ns: u64) {
        let Some(left) = ns.checked_sub(self.overslept_ns) else {
            self.overslept_ns -= ns;
            return;
        };
        let began = executor.now();
        executor.sleep_ns(left).await;
        self.overslept_ns = executor.now().since_ns(began).saturating_sub(left);
    }
}
