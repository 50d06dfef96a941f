use super::*;
use base::PartitionId;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum VersionStep {
    Open,
    /// The open snapshot of this rank ends.
    Close(usize),
    /// These pages are changed together; of every fifth the bytes are not at hand.
    Change(Vec<u32>),
}

fn steps() -> impl Strategy<Value = Vec<VersionStep>> {
    let step = prop_oneof![
        2 => Just(VersionStep::Open),
        2 => any::<prop::sample::Index>().prop_map(|index| VersionStep::Close(index.index(1 << 16))),
        5 => prop::collection::vec(0..6_u32, 1..4).prop_map(VersionStep::Change),
    ];
    prop::collection::vec(step, 1..60)
}

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(2), number)
}

/// All that every page ever was: what it became at which moment.
struct EveryVersion(BTreeMap<PageId, Vec<WasSince>>);

/// From when on a page was what.
type WasSince = (Lsn, Rc<[u8]>);

impl EveryVersion {
    fn as_of(&self, page: PageId, moment: Lsn) -> &Rc<[u8]> {
        let (_, bytes) =
            self.0[&page].iter().rev().find(|(at, _)| *at <= moment).expect("there was one at the beginning");
        bytes
    }

    fn present(&self, page: PageId) -> &Rc<[u8]> {
        self.as_of(page, Lsn(u64::MAX))
    }
}

/// Each open snapshot sees each page as it was, or is told that it is lost if it was not at hand; no version stays that none sees; none is
/// lost while there is room.
fn agrees(steps: &[VersionStep], room: usize) -> Result<(), TestCaseError> {
    let mut versions = PageVersions::new(room);
    let mut all = EveryVersion((0..6).map(|number| (page(number), vec![(Lsn::ZERO, Rc::from([0; 8]))])).collect());
    let (mut open, mut now, mut absent) = (Vec::new(), Lsn(7), BTreeSet::new());
    for step in steps {
        match step {
            VersionStep::Open => {
                versions.open(now);
                open.push(now);
            }
            VersionStep::Close(_) if open.is_empty() => {}
            VersionStep::Close(rank) => versions.close(open.remove(rank % open.len())),
            VersionStep::Change(pages) => {
                now = Lsn(now.0 + 10);
                for number in pages.iter().copied().collect::<BTreeSet<u32>>() {
                    let is_at_hand = (now.0 + u64::from(number)) % 5 != 0;
                    let before = Rc::clone(all.present(page(number)));
                    if !is_at_hand {
                        absent.insert((page(number), before.to_vec()));
                    }
                    versions.change(page(number), now, || is_at_hand.then_some(before));
                    let after = Rc::from((now.0 << 8 | u64::from(number)).to_le_bytes());
                    all.0.get_mut(&page(number)).expect("it is there").push((now, after));
                }
                let full = versions.used();
                let lost = versions.make_room();
                prop_assert_eq!(full > room, lost.is_some());
                prop_assert!(lost.is_none_or(|lost| open.contains(&lost)));
                // The oldest go first.
                open.retain(|moment| lost.is_none_or(|lost| *moment > lost));
            }
        }
        prop_assert!(versions.used() <= room);
        prop_assert_eq!(versions.moments.values().sum::<usize>(), open.len());
        for moment in &open {
            for number in 0..6 {
                let expected = all.as_of(page(number), *moment);
                match versions.as_of(page(number), *moment) {
                    AsOf::Present => prop_assert_eq!(all.present(page(number)), expected),
                    AsOf::Earlier(found) => prop_assert_eq!(&found, expected),
                    AsOf::Lost => prop_assert!(absent.contains(&(page(number), expected.to_vec()))),
                }
            }
        }
        // What is there is what some snapshot sees, and no more.
        for ((page, end), version) in &versions.versions {
            prop_assert!(open.iter().any(|moment| version.from <= *moment && moment < end), "{page} until {end}");
        }
        let oldest = open.iter().min();
        prop_assert!(versions.changes.values().all(|at| oldest.is_some_and(|oldest| oldest < at)));
        let bytes: usize = versions.versions.values().flat_map(|version| &version.bytes).map(|bytes| bytes.len()).sum();
        let entries = versions.versions.len() + versions.changes.len();
        prop_assert_eq!(versions.used(), bytes + ENTRY_SIZE * entries);
        prop_assert_eq!(versions.pages_by_end.len(), versions.versions.len());
        prop_assert_eq!(versions.pages_by_change.len(), versions.changes.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_snapshot_sees_what_was(steps in steps()) {
        agrees(&steps, usize::MAX)?;
    }

    #[test]
    fn with_little_room_the_oldest_are_lost_and_none_sees_what_is_wrong(steps in steps(), entries in 0..20_usize) {
        agrees(&steps, entries * ENTRY_SIZE)?;
    }
}
