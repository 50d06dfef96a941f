//! How the file grows, where its device has room and where not.

use super::ground::{give_up, settings, with_space};
use crate::Error;
use crate::temp::space::Extent;
use crate::temp::{Space, TempSettings};
use base::Random;
use driver::OpKind;
use executor::{Executor, Order};
use std::collections::BTreeSet;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

/// A machine whose disk has room for this number of bytes, and of whose changes of a file's length these fail.
fn machine(capacity: Option<u64>, failing: &[u64]) -> Executor {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").capacity = capacity;
    let errors = failing.iter().map(|nth| ErrorAt { kind: OpKind::Resize, device: None, nth: *nth }).collect();
    let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// Extents of 512 KiB.
fn large() -> TempSettings {
    settings(64 << 10)
}

async fn take_all(space: &Space) -> (Vec<Rc<Extent>>, Error) {
    let mut taken = Vec::new();
    loop {
        match space.extent().await {
            Ok(extent) => taken.push(extent),
            Err(error) => return (taken, error),
        }
    }
}

#[test]
fn two_that_grow_it_at_once_get_all_room_of_the_device_in_few_steps() {
    for free_mib in [1, 63, 64, 65, 100, 150, 300] {
        // A change of the length that comes after these would fail otherwise than for lack of room.
        let executor = machine(Some(free_mib << 20), &[120]);
        with_space(&executor, &large(), async |space| {
            let other = space.clone();
            let other = executor.spawn(async move { take_all(&other).await });
            let own = take_all(space).await;
            let other = other.join().await;
            for error in [&own.1, &other.1] {
                let is_full = matches!(error, Error::TempFull { bytes, .. } if *bytes == free_mib << 20);
                assert!(is_full, "{free_mib} MiB: {error}");
            }
            let numbers: BTreeSet<u32> = own.0.iter().chain(&other.0).map(|extent| extent.number()).collect();
            assert_eq!(numbers.len(), own.0.len() + other.0.len(), "each has its own");
            assert_eq!(numbers.len() as u64, 2 * free_mib);
            drop(own);
            let again = take_all(space).await;
            assert_eq!((again.0.len() + other.0.len()) as u64, 2 * free_mib);
        });
    }
}

#[test]
fn what_fails_while_it_grows_is_told_to_who_asked_and_takes_nothing_away() {
    for failing in [&[1][..], &[2], &[1, 2], &[2, 3]] {
        let executor = machine(Some(150 << 20), failing);
        with_space(&executor, &large(), async |space| {
            let (mut taken, mut failures) = (Vec::new(), 0);
            loop {
                let (more, error) = take_all(space).await;
                taken.extend(more);
                match error {
                    Error::Input(_) => failures += 1,
                    full => break assert!(matches!(full, Error::TempFull { .. }), "{full}"),
                }
            }
            assert_eq!((failures, taken.len()), (failing.len(), 300));
        });
    }
}

#[test]
fn extents_that_are_taken_given_back_and_given_up_are_each_of_one_owner() {
    for seed in 0..20 {
        let executor = machine(Some(200 << 20), &[3]);
        with_space(&executor, &large(), async |space| {
            let tasks: Vec<_> = (0..3_u64)
                .map(|task| {
                    let (space, executor) = (space.clone(), executor.clone());
                    let mut random = Random::stream(seed * 10 + task, "task");
                    executor.clone().spawn(async move {
                        let mut own: Vec<Rc<Extent>> = Vec::new();
                        for _ in 0..600 {
                            if random.chance(0.2) && !own.is_empty() {
                                own.swap_remove(random.below(own.len() as u64) as usize);
                            }
                            match give_up(space.extent(), random.below(8)).await {
                                Some(Ok(extent)) => own.push(extent),
                                Some(Err(Error::TempFull { .. } | Error::Input(_))) => own.truncate(own.len() / 2),
                                Some(Err(error)) => return Err(error),
                                None => executor.yield_now().await,
                            }
                        }
                        Ok::<_, Error>(own)
                    })
                })
                .collect();
            let (mut numbers, mut count) = (BTreeSet::new(), 0);
            let mut kept = Vec::new();
            for task in tasks {
                kept.extend(task.join().await?);
            }
            for extent in &kept {
                numbers.insert(extent.number());
                count += 1;
            }
            assert_eq!(numbers.len(), count, "each has its own");
            let in_use = space.statistics().bytes_in_use;
            assert!(in_use == 0 || in_use == count as u64 * space.extent_bytes(), "{in_use} of {count}");
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
