use base::{Instant, Random};

/// What goes wrong on a network, and when. By default nothing does.
///
/// Probabilities are for each parcel that carries bytes between two machines, or the end of its stream. None comes twice: a stream, as
/// TCP has it, shows each byte once, and what is said twice on two connections is their users' affair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkFaults {
    /// Machines that others cannot reach for a while.
    pub partitions: Vec<Partition>,
    /// What goes wrong with what one machine sends another one, for a while.
    pub one_way: Vec<OneWay>,
    /// The probability that a parcel is late.
    pub late: f64,
    /// By how much, in the mean, in nanoseconds (exponential). Parcels behind it on the same connection wait for it; those of
    /// other connections overtake it.
    pub late_ns: u64,
    /// The probability that the connection breaks in place of carrying a parcel. The ends learn of it one after the other, up
    /// to some `late_ns` apart; what is on its way meanwhile still arrives at the end that does not know.
    pub reset: f64,
    /// The probability that this direction of the connection carries nothing any more, and neither end is told.
    pub hang: f64,
}

/// Machines that reach each other and no others, for a while. What is sent across waits for the end of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// The machines, by number.
    pub machines: Vec<u32>,
    /// From here on,
    pub from: Instant,
    /// up to here.
    pub until: Instant,
}

/// What goes wrong with what one machine sends another one, for a while. What the other one sends is carried as before.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWay {
    /// The machine that sends, and the one that it sends to.
    pub machines: (u32, u32),
    /// From here on,
    pub from: Instant,
    /// up to here.
    pub until: Instant,
    /// By how much all of it is late, in nanoseconds. If this is absent, it waits for the end.
    pub late_ns: Option<u64>,
}

impl OneWay {
    fn concerns(&self, now: Instant, machines: (u32, u32)) -> bool {
        self.machines == machines && self.from <= now && now < self.until
    }
}

/// How often something went wrong on a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkInjected {
    /// Parcels that were late.
    pub late: u64,
    /// Parcels that waited for the end of a partition.
    pub held: u64,
    /// Connections that broke.
    pub resets: u64,
    /// Directions of connections that hang.
    pub hung: u64,
    /// Parcels with bytes that were late, or had waited, and came when the connection had ended where they came to.
    pub stray: u64,
}

/// What becomes of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Carried,
    /// It leaves so much later.
    Late(u64),
    /// The connection breaks.
    Reset,
    /// It is lost, and so is all that follows.
    Hung,
}

/// A plan at work.
pub(crate) struct Chance {
    faults: NetworkFaults,
    random: Random,
    pub(crate) injected: NetworkInjected,
}

/// Peers send again what was not acknowledged, after this long at most.
const RETRANSMISSION_NS: u64 = 200 * base::time::MILLISECOND_NS;

impl Chance {
    pub(crate) fn new(faults: NetworkFaults, seed: u64) -> Chance {
        Chance { faults, random: Random::stream(seed, "network faults"), injected: NetworkInjected::default() }
    }

    pub(crate) fn partition(&mut self, partition: Partition) {
        self.faults.partitions.push(partition);
    }

    pub(crate) fn disturb(&mut self, one_way: OneWay) {
        self.faults.one_way.push(one_way);
    }

    /// What becomes of a parcel of a connection between two machines.
    pub(crate) fn fate(&mut self) -> Fate {
        let NetworkFaults { late, late_ns, reset, hang, .. } = self.faults;
        if reset > 0.0 && self.random.chance(reset) {
            self.injected.resets += 1;
            return Fate::Reset;
        }
        if hang > 0.0 && self.random.chance(hang) {
            self.injected.hung += 1;
            return Fate::Hung;
        }
        if late > 0.0 && self.random.chance(late) {
            self.injected.late += 1;
            return Fate::Late(self.random.exponential(late_ns as f64) as u64);
        }
        Fate::Carried
    }

    /// When a parcel that cannot leave now will be sent again: after the partitions that part these machines.
    pub(crate) fn held(&mut self, now: Instant, (from, to): (u32, u32)) -> Option<Instant> {
        let parts = |partition: &&Partition| {
            let is_inside = |machine| partition.machines.contains(&machine);
            partition.from <= now && now < partition.until && is_inside(from) != is_inside(to)
        };
        let partitions = self.faults.partitions.iter().filter(parts).map(|partition| partition.until);
        let cuts = self.faults.one_way.iter().filter(|one_way| one_way.late_ns.is_none());
        let cuts = cuts.filter(|cut| cut.concerns(now, (from, to))).map(|cut| cut.until);
        let until = partitions.chain(cuts).max()?;
        self.injected.held += 1;
        Some(self.retransmission(until))
    }

    /// How late a parcel leaves, whatever else becomes of it.
    pub(crate) fn lateness_ns(&mut self, now: Instant, machines: (u32, u32)) -> u64 {
        let late = self.faults.one_way.iter().filter(|one_way| one_way.concerns(now, machines));
        let ns = late.filter_map(|one_way| one_way.late_ns).max().unwrap_or(0);
        self.injected.late += u64::from(ns > 0);
        ns
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn heal(&mut self) {
        self.faults = NetworkFaults::default();
    }

    /// When something is sent again that could have arrived from `now` on.
    pub(crate) fn retransmission(&mut self, now: Instant) -> Instant {
        now.plus_ns(self.random.below(RETRANSMISSION_NS))
    }

    /// How long one end of a broken connection learns of it after the other, and which end learns first.
    pub(crate) fn rift(&mut self) -> (u64, usize) {
        (self.random.exponential(self.faults.late_ns as f64) as u64, self.random.below(2) as usize)
    }
}
