//! The contract suite of brokers, in memory and in a directory.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::contract::{Disturbance, Disturber, Subject, Trouble};
use headwater_broker::{BrokerError, contract_suite};
use headwater_embedded::{CallKind, Embedded, EmbeddedOptions, Fault, FaultPlan};

contract_suite!(memory, subject(Embedded::in_memory()));
contract_suite!(directory, in_directory());

fn subject(broker: Embedded) -> Subject {
    Subject::new(Arc::new(broker.clone())).disturbed_by(disturber(broker))
}

fn in_directory() -> Subject {
    let directory = tempfile::tempdir().expect("a temporary directory is to be had");
    // Small segments, so that the suite goes over their borders.
    let options = EmbeddedOptions::new().segment_bytes(200);
    let broker = Embedded::open(directory.path(), options).expect("the directory can be opened");
    subject(broker).keeping(directory)
}

fn disturber(broker: Embedded) -> Disturber {
    Arc::new(move |disturbances: &[Disturbance]| {
        let plan = disturbances.iter().fold(FaultPlan::new(), |plan, disturbance| {
            let fault = match disturbance.trouble {
                Trouble::LostAnswer => Fault::LoseAnswer { after: Duration::from_millis(300) },
                Trouble::LostRequest => Fault::Fail(BrokerError::TimedOut {
                    call: "produce",
                    limit: Duration::from_millis(300),
                }),
                Trouble::Delay(delay) => Fault::Delay(delay),
            };
            let target = disturbance.topic_partition.to_string();
            plan.fault(CallKind::Produce, target, disturbance.numbers.clone(), fault)
        });
        broker.set_faults((!disturbances.is_empty()).then_some(plan));
    })
}
