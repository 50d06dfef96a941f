use super::*;
use crate::Order;
use base::Random;
use std::future::poll_fn;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn executor(order: Order) -> Executor {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    Executor::new(Box::new(driver), order)
}

/// What a naive model of the queue expects: the items in order of arrival; the first `capacity` of the remaining ones are in
/// the queue.
#[derive(Default)]
struct Model {
    left: VecDeque<u64>,
}

#[test]
fn items_leave_in_the_order_of_arrival_also_if_others_give_up() {
    for seed in 0..100 {
        let order = if seed % 2 == 0 { Order::FirstInFirstOut } else { Order::Seeded(seed) };
        let executor = executor(order);
        let mut random = Random::stream(seed, "bounded queue");
        let capacity = random.between(1, 5) as usize;
        let queue = Rc::new(BoundedQueue::new(capacity));
        let model = Rc::new(RefCell::new(Model::default()));
        let mut next = 0_u64;
        let result = executor.run(async {
            for _ in 0..200 {
                if random.chance(0.6) {
                    // A submitter that comes now, and may give up later.
                    let (queue, model, clone) = (Rc::clone(&queue), Rc::clone(&model), executor.clone());
                    let patience_ns = random.chance(0.3).then(|| random.between(1, 400));
                    let number = next;
                    next += 1;
                    executor.spawn(async move {
                        let mut push = queue.push(&clone, number);
                        model.borrow_mut().left.push_back(number);
                        let mut polled = false;
                        let deadline = patience_ns.map(|ns| clone.now().plus_ns(ns));
                        let mut timer = Box::pin(clone.sleep_until(deadline.unwrap_or(base::Instant::NEVER)));
                        let entered = poll_fn(|context| {
                            if Pin::new(&mut push).poll(context).is_ready() {
                                return Poll::Ready(true);
                            }
                            polled = true;
                            timer.as_mut().poll(context).map(|()| false)
                        })
                        .await;
                        if !entered {
                            model.borrow_mut().left.retain(|other| *other != number);
                        }
                    });
                } else {
                    let taken = queue.pop(&executor);
                    let expected = model.borrow_mut().left.pop_front();
                    let (mut next, rest) = (None, model.borrow().left.get(1).copied());
                    queue.look_ahead(1, |item| next = Some(*item));
                    assert_eq!(next, rest.filter(|_| capacity > 2), "seed {seed}");
                    assert_eq!(taken, expected, "seed {seed}");
                }
                executor.sleep_ns(random.between(1, 100)).await;
                let left = model.borrow().left.len();
                assert_eq!(queue.len(), left.min(capacity), "seed {seed}: an item that has room enters");
                assert_eq!(queue.waiting(), left.saturating_sub(capacity), "seed {seed}");
            }
        });
        executor.stop();
        result.expect("the machine goes on");
    }
}

#[test]
fn no_item_overtakes_a_waiting_one() {
    let executor = executor(Order::FirstInFirstOut);
    let queue = Rc::new(BoundedQueue::new(1));
    let (shared, clone) = (Rc::clone(&queue), executor.clone());
    executor.spawn(async move {
        shared.push(&clone, 1).await;
        shared.push(&clone, 2).await;
    });
    executor
        .run(async {
            executor.yield_now().await;
            assert_eq!(queue.pop(&executor), Some(1));
            assert_eq!(queue.try_push(3), Err(3), "the second was promised the room");
            executor.yield_now().await;
            assert_eq!(queue.pop(&executor), Some(2));
            assert_eq!(queue.try_push(3), Ok(()));
        })
        .expect("the machine goes on");
}
