//! What is particular about the logs of this broker.

use bytes::Bytes;
use headwater_broker::{Isolation, ListedOffset, OffsetQuery, OffsetSpec, Offsets, TopicPartition};
use headwater_embedded::Embedded;
use headwater_records::{Batches, Compression};

use crate::tools::{batch, clocked, create, fetch, log_text, quiet, send, write, writer};

#[tokio::test(start_paused = true)]
async fn the_broker_sets_the_time_if_it_is_to() {
    let (options, clock) = clocked();
    let broker = Embedded::in_memory_with(options);
    create(&broker, "t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let at = TopicPartition::new("t", 0);
    for now_ms in [1000, 2000] {
        clock.set(now_ms);
        let batch = batch(Compression::Lz4, &[(5, "a", "1"), (7, "b", "2")]);
        write(&broker, &at, [batch]).await[0].as_ref().unwrap();
    }
    let data = fetch(&broker, &at, 0).await.unwrap();
    let mut times = Vec::new();
    for batch in Batches::new(data.batches) {
        let records = batch.unwrap().decompress(1 << 20).unwrap();
        times.extend(records.iter().map(|record| record.unwrap().timestamp));
    }
    assert_eq!(times, [1000, 1000, 2000, 2000]);
    let query = OffsetQuery { topic_partition: at, spec: OffsetSpec::AtTimestamp(1001) };
    let found = broker.list_offsets(&[query], Isolation::ReadUncommitted).await.unwrap();
    assert_eq!(found, [Some(ListedOffset { offset: 2, leader_epoch: Some(0) })]);
}

#[tokio::test(start_paused = true)]
async fn batches_read_together_are_copied_once() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let mut writer = writer(&broker).await;
    let place = |bytes: &Bytes| bytes.as_ptr();
    send(&mut *writer, &at, "a").await.unwrap();
    let alone = fetch(&broker, &at, 0).await.unwrap().batches;
    assert_eq!(place(&alone), place(&fetch(&broker, &at, 0).await.unwrap().batches));
    send(&mut *writer, &at, "b").await.unwrap();
    let second = fetch(&broker, &at, 1).await.unwrap().batches;
    assert_eq!(place(&second), place(&fetch(&broker, &at, 1).await.unwrap().batches));
    let both = fetch(&broker, &at, 0).await.unwrap().batches;
    assert_eq!(place(&both), place(&fetch(&broker, &at, 0).await.unwrap().batches));
    let second = fetch(&broker, &at, 1).await.unwrap().batches;
    assert_eq!(place(&second), place(&both.slice(alone.len()..)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_write_side_by_side() {
    const WRITERS: i32 = 4;
    const BATCHES: i64 = 500;
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", WRITERS, &[]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let broker = broker.clone();
        tasks.spawn(async move {
            // Each writer has a partition of its own and one that all share.
            let own = TopicPartition::new("t", number);
            let shared = TopicPartition::new("t", 0);
            let mut writer = writer(&broker).await;
            let mut acknowledgements = Vec::new();
            for value in 0..BATCHES {
                acknowledgements.push(send(&mut *writer, &own, &value.to_string()));
                acknowledgements.push(send(&mut *writer, &shared, &value.to_string()));
            }
            for acknowledgement in acknowledgements {
                acknowledgement.await.expect("the batch is acknowledged");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    for number in 1..WRITERS {
        let own = log_text(&broker, &TopicPartition::new("t", number)).await;
        let values: Vec<i64> = own
            .split("key=")
            .skip(1)
            .map(|rest| rest.trim().split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(values, (0..BATCHES).collect::<Vec<_>>());
    }
    let shared = log_text(&broker, &TopicPartition::new("t", 0)).await;
    let expected = BATCHES * i64::from(WRITERS + 1);
    assert!(shared.starts_with(&format!("0..{expected} ")), "{shared:.40}");
}

#[tokio::test(start_paused = true)]
async fn the_broker_knows_how_many_partitions_a_topic_has_by_default() {
    let broker = Embedded::in_memory_with(quiet().default_partitions(3));
    assert_eq!(create(&broker, "t", -1, &[]).await.partitions, 3);
}
