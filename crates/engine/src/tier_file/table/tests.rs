use super::*;
use base::Random;
use executor::Order;
use std::collections::BTreeMap;
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

const STAMP: u64 = 77;

fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor, DeviceId) -> T) -> T {
    let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("flash").expect("the ideal machine has one");
    let result = executor.run(work(&executor, device));
    executor.stop();
    result.expect("the machine goes on")
}

fn held(word: u64) -> Option<HeldVersion> {
    let version = PageVersion { sequence: word % 1000, lsn: Lsn(word) };
    (!word.is_multiple_of(5))
        .then(|| HeldVersion { page: PageId::new(PartitionId((word % 7) as u16), word as u32), version })
}

/// A table, and what its slots should hold.
struct Model {
    slots: Vec<Option<HeldVersion>>,
    random: Random,
}

impl Model {
    fn new(slots: u32, name: &str) -> Model {
        Model { slots: vec![None; slots as usize], random: Random::stream(u64::from(slots), name) }
    }

    /// ChangedSlots some slots and states them.
    async fn change(&mut self, executor: &Executor, table: &SlotTable) {
        let count = self.random.between(1, 3 * CHANGES_MAX as u64).min(self.slots.len() as u64);
        let changed: Vec<u32> = (0..count).map(|_| self.random.below(self.slots.len() as u64) as u32).collect();
        for slot in &changed {
            self.slots[*slot as usize] = held(self.random.word() >> 20);
        }
        table.state(executor, &changed, |slot| self.slots[slot as usize]).await.expect("the device works");
    }
}

/// Opens a table and reads all of it, in pieces of three blocks.
async fn load(
    executor: &Executor,
    device: DeviceId,
    slots: usize,
    position: TablePosition,
) -> std::result::Result<(SlotTable, Vec<Option<HeldVersion>>), String> {
    let opening = STAMP + executor.now().ns();
    let opened = SlotTable::open(executor, device, (slots as u32, opening), position).await.expect("it works");
    let (table, mut reader) = opened?;
    let mut held = vec![None; slots];
    while let Some(statements) = reader.read(executor, 3).await.expect("the device works")? {
        statements.into_iter().for_each(|(slot, stated)| held[slot as usize] = stated);
    }
    Ok((table, held))
}

#[test]
fn what_was_stated_is_read_back_however_often_the_ring_went_round() {
    for slots in [1, 7, 84, 85, 500, 3_000] {
        let media = Media::new();
        let mut model = Model::new(slots, "table");
        run(&media, async |executor, device| {
            let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
            for round in 0..300 {
                model.change(executor, &table).await;
                if round % 20 == 0 {
                    let (again, found) =
                        load(executor, device, slots as usize, table.position()).await.expect("it is whole");
                    assert_eq!(again.position(), table.position(), "{slots} slots, round {round}");
                    assert_eq!(found, model.slots, "{slots} slots, round {round}");
                }
            }
            assert!(table.position().number > table.blocks, "it went round");
        });
    }
}

/// Each opening goes on where the last one has stopped to state slots in turn.
#[test]
fn short_runs_state_every_slot_in_turn() {
    let (media, slots) = (Media::new(), 4_000);
    run(&media, async |executor, device| {
        let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
        let in_slot = |slot| held(u64::from(slot) + 1);
        let all: Vec<u32> = (0..slots).collect();
        for changed in all.chunks(CHANGES_MAX) {
            table.state(executor, changed, in_slot).await.expect("the device works");
        }
        let mut position = table.position();
        for opening in 0..40 {
            let (table, found) = load(executor, device, slots as usize, position).await.expect("it is whole");
            assert_eq!(found, all.iter().map(|slot| in_slot(*slot)).collect::<Vec<_>>(), "opening {opening}");
            for _ in 0..5 {
                table.state(executor, &[0], in_slot).await.expect("the device works");
            }
            position = table.position();
        }
    });
}

/// Whatever a power cut leaves of the statements behind the position that the superblock names: those before hold, and of the
/// others as many as follow without a gap, in their order.
#[test]
fn a_power_cut_leaves_a_state_from_the_named_position_on() {
    let mut ends = BTreeMap::new();
    for seed in 0..60 {
        let (media, slots) = (Media::new(), 400);
        let mut model = Model::new(slots, &format!("cut {seed}"));
        let mut states = vec![model.slots.clone()];
        let named = run(&media, async |executor, device| {
            let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
            let mut named = table.position();
            let rounds = model.random.between(1, 60);
            for round in 0..rounds {
                // One change at a time, so that every block has a state of its own.
                let slot = model.random.below(u64::from(slots)) as u32;
                model.slots[slot as usize] = held(model.random.word() >> 20);
                table.state(executor, &[slot], |slot| model.slots[slot as usize]).await.expect("the device works");
                states.push(model.slots.clone());
                if round == rounds / 2 {
                    named = table.position();
                }
            }
            // Two blocks that no write has acknowledged when the power goes.
            let changed: Vec<u32> = (0..2 * CHANGES_MAX as u32).collect();
            for changes in changed.chunks(CHANGES_MAX) {
                let mut buffer = executor.frame(BLOCK_BYTES).expect("memory");
                model.slots[changes[0] as usize] = held(model.random.word() >> 20);
                table.fill(&mut buffer, changes, |slot| model.slots[slot as usize]);
                states.push(model.slots.clone());
                let offset = table.position().number % table.blocks * BLOCK_BYTES as u64;
                let (file, length, access) = (table.file, BLOCK_BYTES as u32, Access::Asynchronous);
                let op = Op::Write { file, offset, length, buffer, durable: false, access };
                executor.perform(op).await.result.expect("the device works");
            }
            named
        });
        media.power_cut(&mut Random::stream(seed, "power cut"), &PowerCut { lost: 0.4, torn: 0.4 });
        run(&media, async |executor, device| {
            let (table, found) = load(executor, device, slots as usize, named).await.expect("it is whole");
            let end = table.position().number;
            assert!(end >= named.number, "seed {seed}");
            assert_eq!(found, states[end as usize], "seed {seed}");
            *ends.entry(states.len() as u64 - 1 - end).or_insert(0) += 1;
        });
    }
    assert_eq!(ends.keys().copied().collect::<Vec<_>>(), [0, 1, 2], "{ends:?}");
}

/// A lost write before the named position is found, and one behind it ends what counts. Blocks that were behind a gap do not
/// follow what is stated in its place.
#[test]
fn a_lost_write_is_found_or_ends_what_counts() {
    for lost in [1_u64, 5, 40, 70] {
        let (media, slots) = (Media::new(), 200);
        let mut model = Model::new(slots, "lost");
        let mut states = Vec::new();
        let (blocks, last) = run(&media, async |executor, device| {
            let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
            while table.position().number < 90 {
                states.push((table.position().number, model.slots.clone()));
                model.change(executor, &table).await;
            }
            (table.blocks, table.position())
        });
        let number = last.number - last.number.min(lost) % blocks;
        let (offset, length) = (number % blocks * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        media.punch("flash", TABLE_FILE, offset, length).expect("the file is there");
        run(&media, async |executor, device| {
            let named = TablePosition { number, ..last };
            // Those behind the lost one may be of another life.
            let found = load(executor, device, slots as usize, named).await;
            assert!(found.is_err(), "{lost} blocks before the end");
            let named = TablePosition { number: number - 1, ..last };
            if let Ok((table, found)) = load(executor, device, slots as usize, named).await {
                assert_eq!(table.position().number, number - 1);
                let state = states.iter().find(|(end, _)| *end == number - 1);
                assert!(state.is_none_or(|(_, state)| *state == found));
                // What follows does not fit the blocks that were behind the lost one.
                table.state(executor, &[0], |_| None).await.expect("the device works");
                let (again, _) = load(executor, device, slots as usize, named).await.expect("it goes on");
                assert_eq!(again.position(), table.position(), "the old blocks behind it do not count");
            }
            let other = TablePosition { stamp: STAMP + 1, ..last };
            assert!(load(executor, device, slots as usize, other).await.is_err(), "it is another table's");
        });
    }
}

#[test]
fn a_named_block_whose_place_another_round_has_taken_is_not_missed() {
    let (media, slots) = (Media::new(), 200);
    let mut model = Model::new(slots, "rounds");
    run(&media, async |executor, device| {
        let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
        model.change(executor, &table).await;
        let named = table.position();
        while table.position().number < named.number + 3 * table.blocks {
            model.change(executor, &table).await;
        }
        let (_, found) = load(executor, device, slots as usize, named).await.expect("it is whole");
        assert_eq!(found, model.slots);
    });
}

/// A power cut loses a block and spares those behind it; the life that follows loses the block that it states in that place.
#[test]
fn blocks_of_another_life_do_not_stand_in_for_a_lost_one() {
    let (media, slots) = (Media::new(), 200);
    let mut model = Model::new(slots, "lives");
    run(&media, async |executor, device| {
        let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
        while table.position().number < 90 {
            model.change(executor, &table).await;
        }
        let (before, end) = (table.position(), table.position().number + 10);
        while table.position().number < end {
            model.change(executor, &table).await;
        }
        let lost = ((before.number + 1) % table.blocks * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        media.punch("flash", TABLE_FILE, lost.0, lost.1).expect("the file is there");
        let (again, _) = load(executor, device, slots as usize, before).await.expect("it goes on");
        assert_eq!(again.position(), before);
        again.state(executor, &[0], |_| None).await.expect("the device works");
        media.punch("flash", TABLE_FILE, lost.0, lost.1).expect("the file is there");
        let found = load(executor, device, slots as usize, again.position()).await;
        assert!(found.is_err(), "what is believed is of the life before");
    });
}

/// An opening cannot read a block, so it goes on before that; later the block can be read again.
#[test]
fn blocks_that_could_not_be_read_once_do_not_come_back() {
    for gone in [0, 6] {
        let (media, slots) = (Media::new(), 200);
        let mut model = Model::new(slots, "once");
        run(&media, async |executor, device| {
            let table = SlotTable::create(executor, device, slots, STAMP).await.expect("room");
            let mut named = table.position();
            while table.position().number < table.blocks - 4 {
                model.change(executor, &table).await;
                if table.position().number <= gone {
                    named = table.position();
                }
            }
            let offset = (named.number + 1) % table.blocks * BLOCK_BYTES as u64;
            let mut block = vec![0; BLOCK_BYTES];
            media.read("flash", TABLE_FILE, offset, &mut block).expect("it can be read");
            media.punch("flash", TABLE_FILE, offset, BLOCK_BYTES as u64).expect("the file is there");
            let (again, before) = load(executor, device, slots as usize, named).await.expect("it goes on");
            assert_eq!(again.position(), named);
            assert!(again.is_unsure(), "the block may be there when it is looked for again");
            let mut buffer = executor.frame(BLOCK_BYTES).expect("memory");
            buffer.copy_from_slice(&block);
            drop(again.write(executor, offset, buffer, BLOCK_BYTES).await.expect("the device works"));
            again.state(executor, &[], |slot| before[slot as usize]).await.expect("the device works");
            assert!(!again.is_unsure());
            for position in [named, again.position()] {
                let (third, found) = load(executor, device, slots as usize, position).await.expect("it is whole");
                assert_eq!(third.position(), again.position(), "what the opening did not read is not believed");
                assert!(found == before);
            }
        });
    }
}
