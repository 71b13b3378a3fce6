//! Addresses and pauses.

use std::time::Duration;

use super::{BootstrapServers, KafkaOptions};

#[test]
fn addresses_are_read_or_refused() {
    let check = |text: &str, expected: Result<&str, &str>| {
        let read = text.parse::<BootstrapServers>();
        let read = read.map(|servers| servers.to_string()).map_err(|error| error.why);
        assert_eq!(read.as_deref().map_err(|why| *why), expected, "{text}");
    };
    check("localhost:9092", Ok("localhost:9092"));
    check(" a:1 ,, b:65535 ,", Ok("a:1,b:65535"));
    check("[::1]:9092,10.0.0.1:9092", Ok("[::1]:9092,10.0.0.1:9092"));
    check("", Err("no address is given"));
    check(" , ", Err("no address is given"));
    check("localhost", Err("the port is missing"));
    check(":9092", Err("the host is missing"));
    check("::1:9092", Err("an IPv6 address stands in brackets: [::1]:9092"));
    check("[::1:9092", Err("a bracket is not closed"));
    check("http://localhost:9092", Err("host:port is wanted, without a scheme"));
    check("localhost:0", Err("the port is not a number from 1 to 65535"));
    check("localhost:70000", Err("the port is not a number from 1 to 65535"));
    check("a b:1", Err("the host is not a name"));
}

#[test]
fn pauses_double_up_to_their_limit() {
    let options = KafkaOptions::new("localhost:9092".parse().expect("a good address"));
    let pauses: Vec<_> =
        [0, 1, 2, 3, 4, 40].map(|number| options.retry_pause(number).as_millis()).into();
    assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
    assert_eq!(options.reconnect_pause(0), Duration::from_millis(50));
    assert_eq!(options.reconnect_pause(9), Duration::from_secs(1));
}
