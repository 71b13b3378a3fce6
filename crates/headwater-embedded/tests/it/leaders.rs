//! Changes of leaders: new epochs, and what an unclean election loses.

use headwater_broker::{
    BrokerError, EpochEnd, EpochQuery, Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition,
};
use headwater_embedded::Embedded;
use headwater_records::Batches;

use crate::tools::{create, delete_before, fetch, log_text, quiet, send, write_values, writer};

fn at() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// Where the epochs end that the log has had, as `epoch..end`.
async fn epochs(broker: &Embedded) -> String {
    let queries: Vec<EpochQuery> =
        (0..8).map(|leader_epoch| EpochQuery { topic_partition: at(), leader_epoch }).collect();
    let ends = broker.epoch_ends(&queries).await.expect("the broker does it").into_iter().flatten();
    let text =
        ends.map(|EpochEnd { leader_epoch, end_offset }| format!("{leader_epoch}..{end_offset}"));
    text.collect::<Vec<_>>().join(" ")
}

async fn newest_epoch(broker: &Embedded) -> Option<i32> {
    let query = OffsetQuery { topic_partition: at(), spec: OffsetSpec::Latest };
    let found = broker
        .list_offsets(&[query], Isolation::ReadUncommitted)
        .await
        .expect("the broker does it");
    found[0].expect("the broker does it").leader_epoch
}

async fn epochs_of_batches(broker: &Embedded) -> Vec<i32> {
    let data = fetch(broker, &at(), 0).await.expect("the broker does it");
    Batches::new(data.batches)
        .map(|batch| batch.expect("the broker does it").header().leader_epoch)
        .collect()
}

async fn leaders_change(broker: &Embedded) {
    create(broker, "t", 1, &[]).await;
    write_values(broker, &at(), &["a", "b", "c"]).await;
    assert_eq!(epochs(broker).await, "0..3");

    assert_eq!(broker.change_leader(&at(), i64::MAX).expect("the broker does it"), 1);
    assert_eq!(epochs(broker).await, "0..3 1..3");
    write_values(broker, &at(), &["d", "e"]).await;
    assert_eq!(epochs(broker).await, "0..3 1..5");
    assert_eq!(newest_epoch(broker).await, Some(1));

    // This one had not yet heard of the last three.
    let mut old = writer(broker).await;
    send(&mut *old, &at(), "f").await.expect("the broker does it");
    assert_eq!(broker.change_leader(&at(), 2).expect("the broker does it"), 2);
    assert_eq!(log_text(broker, &at()).await, "0..2 0:key=a 1:key=b");
    assert_eq!(epochs(broker).await, "0..2 0..2 2..2");
    let error = send(&mut *old, &at(), "g").await.expect_err("it is lost");
    assert!(matches!(error, BrokerError::OutOfOrderSequence { .. }), "{error}");
    let error = fetch(broker, &at(), 5).await.expect_err("it is lost");
    assert!(matches!(error, BrokerError::OffsetOutOfRange { end_offset: 2, .. }), "{error}");

    write_values(broker, &at(), &["x", "y", "z"]).await;
    let log = "0..5 0:key=a 1:key=b 2:key=x 3:key=y 4:key=z";
    assert_eq!(log_text(broker, &at()).await, log);
}

#[tokio::test(start_paused = true)]
async fn an_unclean_election_loses_the_end_of_the_log() {
    let broker = Embedded::in_memory_with(quiet());
    leaders_change(&broker).await;
    assert_eq!(epochs_of_batches(&broker).await, [0, 0, 2, 2, 2]);
    // Everything, also what is in a batch that has been put together with others.
    assert_eq!(broker.change_leader(&at(), 0).unwrap(), 3);
    assert_eq!(log_text(&broker, &at()).await, "0..0");
    write_values(&broker, &at(), &["new"]).await;
    assert_eq!(log_text(&broker, &at()).await, "0..1 0:key=new");
}

#[tokio::test(start_paused = true)]
async fn epochs_are_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    // Every batch in a segment of its own, or nearly so.
    for segment_bytes in [100, 200, 1 << 20] {
        let path = directory.path().join(segment_bytes.to_string());
        let options = || quiet().segment_bytes(segment_bytes);
        let broker = Embedded::open(&path, options()).unwrap();
        leaders_change(&broker).await;
        drop(broker);
        let broker = Embedded::open(&path, options()).unwrap();
        let log = "0..5 0:key=a 1:key=b 2:key=x 3:key=y 4:key=z";
        assert_eq!(log_text(&broker, &at()).await, log);
        assert_eq!(epochs(&broker).await, "0..2 0..2 2..5");
        delete_before(&broker, &at(), 3).await;
        assert_eq!(broker.change_leader(&at(), 4).unwrap(), 3);
        write_values(&broker, &at(), &["n"]).await;
        drop(broker);
        let broker = Embedded::open(&path, options()).unwrap();
        assert_eq!(log_text(&broker, &at()).await, "3..5 3:key=y 4:key=n");
        assert_eq!(newest_epoch(&broker).await, Some(3));
    }
}
