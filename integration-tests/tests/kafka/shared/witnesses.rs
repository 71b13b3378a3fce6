//! The witness itself: what it writes is what it reads.

use crate::environment::{Tier, bootstrap, unique};
use crate::witness::{Seen, Witness};

#[tokio::test]
async fn what_the_witness_writes_it_reads() {
    let witness = Witness::connect(&bootstrap()).await;
    let topic = unique("witness");
    witness.create_topic(&topic, 3, 1).await;
    let count = Tier::of_this_run().pick(300, 300_000);
    let sent: Vec<Seen> = (0..count)
        .map(|number| {
            Seen::new(number, format!("key {}", number % 7), format!("value {number}"))
                .header("number", number.to_string())
        })
        .collect();
    witness.write(&topic, 3, &sent).await;
    let read = witness.read(&topic, 3).await;
    assert_eq!(read.len(), sent.len());
    for (index, partition) in (0..).zip(0..3) {
        let expected: Vec<&Seen> = sent.iter().skip(index).step_by(3).collect();
        let found: Vec<&Seen> = read.iter().filter(|it| it.partition == partition).collect();
        assert_eq!(expected.len(), found.len());
        for (sent, found) in expected.iter().zip(&found) {
            assert!(sent.same_record(found), "{sent:?}\n{found:?}");
        }
    }
}
