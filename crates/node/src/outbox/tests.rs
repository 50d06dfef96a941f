use super::*;
use crate::channel::Future;
use crate::message::{Answer, decode, frame_size};
use base::time::MILLISECOND_NS;
use executor::Order;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// Takes everything and notes in which pieces it came.
#[derive(Default)]
struct Recorded(RefCell<Vec<Vec<u8>>>);

impl Channel for Recorded {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        self.0.borrow_mut().push(bytes.to_vec());
        Box::pin(std::future::ready(Ok(())))
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive<'a>(&'a self, _: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(std::future::pending())
    }
}

const COUNT: u64 = 100;

/// Puts messages of 4 KiB into an outbox, half of them when the others have left. Returns the pieces.
fn sent_on(hardware: Hardware) -> Vec<Vec<u8>> {
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let (channel, traffic) = (Rc::new(Recorded::default()), Rc::default());
    executor
        .run(async {
            let outbox = Outbox::new(&executor, Rc::clone(&channel) as Rc<dyn Channel>, &traffic, (4_096, usize::MAX));
            for sent in 0..COUNT {
                if sent == COUNT / 2 {
                    executor.sleep_ns(MILLISECOND_NS).await;
                    assert_eq!((outbox.waiting.get(), traffic.waiting.get()), (0, 0));
                }
                outbox.push(&Answer::Renewed { sent });
            }
            assert_eq!(outbox.waiting.get(), 4_096 * COUNT as usize / 2);
            outbox.close();
            executor.sleep_ns(MILLISECOND_NS).await;
        })
        .expect("the machine goes on");
    assert_eq!((traffic.messages.get(), traffic.waiting.get()), (COUNT, 0));
    assert_eq!(traffic.kinds.borrow().get("renewed").map(|amount| amount.bytes), Some(4_096 * COUNT));
    executor.stop();
    channel.0.take()
}

fn messages_of(piece: &[u8]) -> Vec<u64> {
    let (mut rest, mut found) = (piece, Vec::new());
    while let Some(size) = frame_size(rest, SIZE_MAX).expect("it is a message") {
        let (frame, behind) = rest.split_at(size);
        let Ok(Answer::Renewed { sent }) = decode(frame) else { panic!("another message") };
        found.push(sent);
        rest = behind;
    }
    assert!(rest.is_empty(), "a piece is of whole messages");
    found
}

#[test]
fn what_waits_together_leaves_together_in_order() {
    let pieces = sent_on(Hardware::ideal());
    assert_eq!(
        pieces.iter().map(Vec::len).collect::<Vec<_>>(),
        [14, 14, 14, 8, 14, 14, 14, 8].map(|count| count * 4_096)
    );
    assert!(pieces.iter().flat_map(|piece| messages_of(piece)).eq(0..COUNT));
}

/// Their time is paid one by one, as the peer receives them.
#[test]
fn messages_with_a_price_leave_one_by_one() {
    let hardware = Hardware::named("franklin-1992-server").expect("it is described");
    let pieces = sent_on(hardware);
    assert!(pieces.iter().map(|piece| messages_of(piece)).eq((0..COUNT).map(|sent| vec![sent])));
}

#[test]
fn kinds_are_in_the_order_of_their_names_whatever_memory_their_names_are_in() {
    let mut kinds = Kinds::default();
    let other: &'static str = String::from("page").leak();
    for (kind, bytes) in [("page", 5), ("commit", 1), (other, 7), ("read", 2), ("page", 1)] {
        kinds.add(kind, bytes);
    }
    let found: Vec<_> = kinds.iter().map(|(kind, amount)| (kind, amount.messages, amount.bytes)).collect();
    assert_eq!(found, [("commit", 1, 1), ("page", 3, 13), ("read", 1, 2)]);
}

/// Takes no time, until it is gone.
#[derive(Default)]
struct Immediate {
    taken: RefCell<Vec<u8>>,
    is_gone: Cell<bool>,
}

impl Channel for Immediate {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(self.send_at_once(bytes.to_vec())))
    }

    fn sends_at_once(&self) -> bool {
        true
    }

    fn send_at_once(&self, bytes: Vec<u8>) -> Result<(), Fault> {
        if self.is_gone.get() {
            return Err(Fault::new(driver::FaultKind::Reset, "it is gone"));
        }
        self.taken.borrow_mut().extend(bytes);
        Ok(())
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive<'a>(&'a self, _: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(std::future::pending())
    }
}

/// Runs `work` with an outbox of this channel.
fn with_outbox(channel: Rc<dyn Channel>, work: impl AsyncFnOnce(&Executor, &Outbox)) {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let outbox = Outbox::new(&executor, channel, &Rc::default(), (0, usize::MAX));
    executor.run(work(&executor, &outbox)).expect("the machine goes on");
    executor.stop();
}

#[test]
fn what_is_flushed_leaves_in_that_step_where_it_takes_no_time() {
    let channel = Rc::new(Immediate::default());
    with_outbox(Rc::clone(&channel) as Rc<dyn Channel>, async |executor, outbox| {
        let push = |sent| outbox.push(&Answer::Renewed { sent });
        (0..3).for_each(push);
        outbox.flush();
        assert_eq!((messages_of(&channel.taken.borrow()), outbox.waiting.get()), (vec![0, 1, 2], 0));
        push(3);
        executor.sleep_ns(MILLISECOND_NS).await;
        push(4);
        outbox.flush();
        assert_eq!(messages_of(&channel.taken.borrow()), [0, 1, 2, 3, 4], "in their order");
        channel.is_gone.set(true);
        push(5);
        outbox.flush();
        assert!(outbox.is_closed());
        executor.sleep_ns(MILLISECOND_NS).await;
        assert_eq!(Rc::strong_count(&channel), 1, "its end is dropped");
    });
}

/// Where messages have prices, the task that empties the queue pays for one while others come.
#[test]
fn what_is_flushed_overtakes_nothing_that_is_on_its_way() {
    let mut hardware = Hardware::named("franklin-1992-server").expect("it is described");
    hardware.cpu.as_mut().expect("it has one").instructions.node_message = 1_000;
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let channel = Rc::new(Immediate::default());
    let outbox = Outbox::new(&executor, Rc::clone(&channel) as Rc<dyn Channel>, &Rc::default(), (0, usize::MAX));
    let pushed = executor.run(async {
        outbox.push(&Answer::Renewed { sent: 0 });
        executor.yield_now().await;
        assert_eq!(outbox.waiting.get(), 0, "it is on its way");
        for sent in 1..4 {
            outbox.push(&Answer::Renewed { sent });
            outbox.flush();
        }
        executor.sleep_ns(SECOND_NS).await;
    });
    pushed.expect("the machine goes on");
    executor.stop();
    assert_eq!(messages_of(&channel.taken.borrow()), [0, 1, 2, 3], "in their order");
}

#[test]
fn a_thread_that_has_ended_has_no_end_of_the_channel_though_its_queue_is_kept() {
    let channel = Rc::new(Immediate::default());
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let outbox = Outbox::new(&executor, Rc::clone(&channel) as Rc<dyn Channel>, &Rc::default(), (0, usize::MAX));
    outbox.push(&Answer::Renewed { sent: 0 });
    outbox.flush();
    executor.stop();
    assert_eq!(Rc::strong_count(&channel), 1, "the peer hears that it has ended");
    drop(channel);
    outbox.push(&Answer::Renewed { sent: 1 });
    outbox.flush();
}

#[test]
fn what_is_flushed_waits_for_its_turn_on_other_channels() {
    let channel = Rc::new(Recorded::default());
    with_outbox(Rc::clone(&channel) as Rc<dyn Channel>, async |executor, outbox| {
        outbox.push(&Answer::Renewed { sent: 7 });
        outbox.flush();
        assert!(channel.0.borrow().is_empty() && outbox.waiting.get() > 0);
        executor.sleep_ns(MILLISECOND_NS).await;
        assert_eq!(messages_of(&channel.0.borrow().concat()), [7]);
    });
}
