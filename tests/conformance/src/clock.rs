use crate::subject::{DEVICE, PAGE, Subject, read};
use base::time::MILLISECOND_NS;
use driver::Token;

pub(crate) fn park_reaches_its_moment(mut subject: Subject) {
    let mut done = Vec::new();
    for wait_ns in [1_000, MILLISECOND_NS, 20 * MILLISECOND_NS] {
        let before = subject.driver.now();
        let until = before.plus_ns(wait_ns);
        subject.driver.park(Some(until), &mut done).expect("a set timer is no reason to stop");
        let after = subject.driver.now();
        assert!(done.is_empty());
        assert!(after >= until, "woken {} ns early", until.since_ns(after));
        assert!(after.since_ns(until) < 500 * MILLISECOND_NS, "woken {} ns late", after.since_ns(until));
    }
}

pub(crate) fn a_past_moment_only_collects(mut subject: Subject) {
    let file = subject.create("past", PAGE as u64);
    let mut done = Vec::new();
    let now = subject.driver.now();
    subject.driver.park(Some(now), &mut done).expect("the machine does not stop");
    assert!(done.is_empty());
    let frame = subject.frame(PAGE, 0);
    let token = subject.submit(read(file, 0, frame));
    // Polling alone brings the completion, given that time passes between the polls.
    for _ in 0..1_000_000 {
        let now = subject.driver.now();
        subject.driver.park(Some(now), &mut done).expect("the machine does not stop");
        if !done.is_empty() {
            break;
        }
        let soon = subject.driver.now().plus_ns(10_000);
        subject.driver.park(Some(soon), &mut done).expect("the machine does not stop");
    }
    assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [token]);
}

pub(crate) fn a_rung_doorbell_ends_the_park(mut subject: Subject) {
    let doorbell = subject.driver.doorbell();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| doorbell.ring()));
    });
    let mut done = Vec::new();
    subject.driver.park(None, &mut done).expect("the machine does not stop");
    assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [Token::DOORBELL]);
    done.clear();
    let soon = subject.driver.now().plus_ns(2 * MILLISECOND_NS);
    subject.driver.park(Some(soon), &mut done).expect("the machine does not stop");
    assert!(done.is_empty(), "one completion tells of all rings before it");
    assert!(subject.driver.now() >= soon);
    doorbell.ring();
    drop(doorbell);
    subject.driver.park(None, &mut done).expect("the last to leave has rung");
    assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [Token::DOORBELL]);
}

pub(crate) fn frames_are_zeroed_aligned_and_separate(mut subject: Subject) {
    for (count, size) in [(1, 512), (7, 1024), (300, PAGE), (5, 64 << 10), (3, 3 * PAGE)] {
        let mut frames = subject.driver.frames(count, size).expect("memory");
        assert_eq!(frames.len(), count);
        for (index, frame) in frames.iter_mut().enumerate() {
            assert_eq!(frame.len(), size);
            assert!(frame.as_ptr().addr().is_multiple_of(size.min(PAGE)) || !size.is_power_of_two());
            assert!(frame.iter().all(|byte| *byte == 0), "a frame is zeroed and shares no byte with those before");
            assert_eq!(frame.index(), index);
            frame.fill(0xFF);
        }
    }
    assert!(subject.driver.frames(0, PAGE).expect("nothing").is_empty());
}

pub(crate) fn a_device_is_known_by_its_name(subject: Subject) {
    let device = subject.driver.device(DEVICE).expect("the subject has this device");
    assert_eq!(subject.driver.device("no such device"), None);
    let traits = subject.driver.traits(device);
    assert!(traits.alignment.is_power_of_two() && traits.atomic_write > 0, "{traits:?}");
    assert!(!subject.driver.description().is_empty());
}

pub(crate) fn statistics_count_and_restart(mut subject: Subject) {
    let file = subject.create("counted", PAGE as u64);
    subject.driver.restart_statistics();
    for _ in 0..20 {
        subject.bytes(file, 0, PAGE);
    }
    let stations = subject.driver.stations();
    for station in &stations {
        assert!((0.0..=1.0).contains(&station.utilization), "{station:?}");
        assert!(station.response_ns_mean >= 0.0 && station.population_mean >= 0.0, "{station:?}");
    }
    assert!(stations.is_empty() || stations.iter().any(|station| station.completed >= 20), "{stations:?}");
    subject.driver.restart_statistics();
    assert!(subject.driver.stations().iter().all(|station| station.completed == 0));
}
