//! Versions in common.

use kafka_protocol::messages::{FetchRequest, OffsetFetchRequest, ProduceRequest};

use super::{REQUIRED, Versions};

fn required() -> Vec<(i16, (i16, i16))> {
    REQUIRED.iter().map(|(key, wanted)| (*key as i16, (0, *wanted))).collect()
}

#[test]
fn the_newest_version_in_common_is_spoken() {
    let ranges = [(0, (0, 13)), (1, (4, 10)), (9, (1, 99))];
    let versions = Versions::new(ranges, []);
    assert_eq!(versions.up_to::<ProduceRequest>(i16::MAX), Some(13));
    assert_eq!(versions.up_to::<FetchRequest>(i16::MAX), Some(10));
    assert_eq!(versions.up_to::<ProduceRequest>(12), Some(12));
    assert_eq!(versions.up_to::<ProduceRequest>(2), None, "ours begin at 3");
    // The newest there is a struct for, although its API has newer ones.
    assert_eq!(versions.up_to::<OffsetFetchRequest>(i16::MAX), Some(9));
    assert_eq!(
        Versions::new([(1, (0, 3))], []).up_to::<FetchRequest>(i16::MAX),
        None,
        "ours begin at 4"
    );
    assert_eq!(
        Versions::new([(1, (40, 50))], []).up_to::<FetchRequest>(i16::MAX),
        None,
        "ours end before"
    );
    assert_eq!(Versions::new([], []).up_to::<FetchRequest>(i16::MAX), None);
}

#[test]
fn an_old_broker_is_told_apart() {
    assert_eq!(Versions::new(required(), []).shortcoming(), None);
    let mut old = required();
    old[1].1 = (0, 8);
    let shortcoming = Versions::new(old, []).shortcoming();
    assert_eq!(
        shortcoming.as_deref(),
        Some("its Fetch call ends at version 8, version 10 is wanted: Kafka 2.1 or newer")
    );
    let mut poor = required();
    poor.retain(|(key, _)| *key != 22);
    let shortcoming = Versions::new(poor, []).shortcoming();
    assert_eq!(
        shortcoming.as_deref(),
        Some("it has no InitProducerId call; Kafka 2.1 or newer is wanted")
    );
}
