//! First words: who is there, and what do they speak?

use std::time::Duration;

use headwater_broker::{BrokerError, NextStep, Topics};
use headwater_kafka::Kafka;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
use tokio::net::TcpListener;

use crate::peer::{Asked, Peer, Reply, all_versions};

async fn refused(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> BrokerError {
    let peer = Peer::start(script).await;
    let mut options = peer.options();
    options.api_timeout = Duration::from_millis(100);
    options.connect_timeout = Duration::from_millis(100);
    let error = Kafka::connect(options).await.expect_err("nobody can be worked with");
    assert!(
        error.to_string().contains(&peer.address.to_string()),
        "{error} names the address {}",
        peer.address
    );
    error
}

#[tokio::test]
async fn a_broker_is_met_with_one_connection() {
    let peer = Peer::start(|_| None).await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let topics = kafka.list_topics().await.expect("it answers");
    assert!(topics.is_empty());
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_broker_without_the_newest_question_is_asked_again() {
    for max in [0, 1, 2, 3] {
        let peer = Peer::start(move |asked| {
            let too_new = asked.key == ApiKey::ApiVersions && asked.version > max;
            too_new.then(|| {
                // As brokers before and after 2.4 put it.
                let mut answer = all_versions().with_error_code(35);
                answer.api_keys.retain(|api| max > 0 && api.api_key == 18);
                for api in &mut answer.api_keys {
                    api.max_version = max;
                }
                asked.answer_in::<ApiVersionsRequest>(&answer, 0)
            })
        });
        let peer = peer.await;
        Kafka::connect(peer.options()).await.expect("an older question is understood");
        assert_eq!(peer.connections(), 1);
    }
}

#[tokio::test]
async fn a_broker_too_old_is_named() {
    let error = refused(|asked| {
        (asked.key == ApiKey::ApiVersions).then(|| {
            let mut answer = all_versions();
            for api in &mut answer.api_keys {
                api.max_version = api.max_version.min(4);
            }
            asked.answer::<ApiVersionsRequest>(&answer)
        })
    });
    let error = error.await;
    assert!(matches!(error, BrokerError::Incompatible { .. }), "{error}");
    assert!(error.to_string().contains("its Produce call ends at version 4"), "{error}");
    assert_eq!(error.next_step(), NextStep::Fail);
}

#[tokio::test]
async fn a_server_of_another_kind_is_told_apart() {
    let cases: [(&'static [u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers in HTTP"),
        (b"<!DOCTYPE html>", "beginning with `<!DO`"),
        (b"SSH-2.0-x\r\n", "beginning with `SSH-`"),
        (&[21, 3, 3, 0, 2, 2, 80], "wants TLS"),
        (&[0xff, 0xff, 0xff, 0xff], "4294967295 bytes"),
    ];
    for (said, expected) in cases {
        let error = refused(|_| Some(Reply::Raw(said.to_vec()))).await;
        assert!(matches!(error, BrokerError::Incompatible { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_may_do_better_later() {
    let error = refused(|_| Some(Reply::Close)).await;
    assert!(matches!(error, BrokerError::Disconnected { .. }), "{error}");
    assert_eq!(error.next_step(), NextStep::Retry);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let error = refused(|_| Some(Reply::Silence)).await;
    assert!(matches!(error, BrokerError::Disconnected { .. }), "{error}");
    assert!(error.to_string().contains("no answer within 100 ms"), "{error}");
}

#[tokio::test]
async fn a_port_without_a_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    drop(listener);
    let mut options = headwater_kafka::KafkaOptions::new(address.parse().expect("an address"));
    options.api_timeout = Duration::from_millis(50);
    let error = Kafka::connect(options).await.expect_err("nobody is there");
    assert!(matches!(error, BrokerError::Disconnected { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn a_server_out_of_reach_is_left_alone_for_a_while() {
    let peer = Peer::start(|_| Some(Reply::Close)).await;
    let mut options = peer.options();
    options.reconnect_backoff = Duration::from_mins(1);
    options.reconnect_backoff_max = Duration::from_mins(1);
    options.api_timeout = Duration::from_millis(100);
    Kafka::connect(options).await.expect_err("it hangs up");
    assert_eq!(peer.connections(), 1, "tried again and again, but not met again so soon");
}
