//! The word count, in peace and under `kill -9`.

use std::time::Duration;

use crate::counting::Counting;
use crate::environment::{Tier, bootstrap};

const LIMIT: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_good_order_is_exact() {
    let lines = Tier::of_this_run().pick(20_000, 1_000_000);
    let mut counting = Counting::prepare(&bootstrap(), 1, 10 << 20).await;
    for half in [lines / 2, lines - lines / 2] {
        counting.write(half).await;
        counting.finish(LIMIT).await;
        let counts = counting.counts().await;
        assert_eq!(counting.excess(&counts), 0);
        assert!(counts.steps_back.is_empty(), "{:?}", counts.steps_back);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_every_count_comes_out_once_and_in_order() {
    let mut counting = Counting::prepare(&bootstrap(), 1, 0).await;
    counting.write(Tier::of_this_run().pick(5_000, 200_000)).await;
    counting.finish(LIMIT).await;
    let counts = counting.counts().await;
    assert_eq!(counting.excess(&counts), 0);
    assert_eq!(i64::try_from(counts.records).unwrap(), counting.words());
    assert_eq!((counts.steps_back.len(), counts.leaps), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_loses_nothing() {
    let tier = Tier::of_this_run();
    let mut counting = Counting::prepare(&bootstrap(), 1, 0).await;
    counting.write(tier.pick(20_000, 1_000_000)).await;
    let (mut kills, mut random) = (0, 1_u64);
    while kills < tier.pick(3, 20) {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let life = Duration::from_millis(500 + (random >> 33) % tier.pick(2_000, 6_000));
        if !counting.live_for(life).await {
            break;
        }
        kills += 1;
    }
    counting.finish(LIMIT).await;
    let counts = counting.counts().await;
    let excess = counting.excess(&counts);
    // After a kill a word's counts may come once more from where they were committed; between two
    // kills they only grow.
    let worst = counts.steps_back.values().max().copied().unwrap_or(0);
    assert!(worst <= kills, "{worst} steps back with {kills} kills");
    assert!(kills > 0, "the job was done before it could be killed");
    assert!(excess < counting.words(), "{excess} of {} words were counted twice", counting.words());
}
