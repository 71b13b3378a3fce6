//! Optimized topologies of a running instance (feature rows D21, T14).

use headwater::broker::simple;
use headwater::prelude::*;
use headwater::{QueryableStoreTypes, StoreQueryParameters, TopologyOptimization};

use crate::app::{APPLICATION, App};

fn topology(app: &App) -> Topology {
    let builder = StreamsBuilder::new();
    let cities = builder.table("cities", Consumed::with(Utf8, Utf8), Materialized::named("cities"));
    cities.to_stream().to("out", Produced::new());
    let config = app.config().topology_optimization(TopologyOptimization::ALL);
    builder.build_with(&config).expect("the topology is whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tables_topic_is_its_changelog() {
    let app = App::new(&["cities", "out"]).await;
    let city = |instance: &Instance, user: &str| {
        let of = StoreQueryParameters::new("cities", QueryableStoreTypes::key_value(Utf8, Utf8));
        instance.store(of).expect("it runs").get(user).expect("the store is here")
    };
    let instance = app.start(topology(&app), |config| config).await;
    let records = [("ada", Some("london")), ("bob", Some("rome")), ("bob", None)];
    app.write("cities", &records.map(|(user, city)| (Some(user), city))).await;
    app.wait_for_the_end(&instance, "cities").await;
    app.wait_until(|| city(&instance, "ada").as_deref() == Some("london")).await;
    assert_eq!(city(&instance, "bob"), None);
    app.close(instance).await;

    // Nothing is written twice, and a lost state is read from the topic, up to what was processed.
    let topics = simple::read_topic(&app.broker, "cities").await.unwrap();
    assert_eq!(topics.len(), records.len());
    let changelog = format!("{APPLICATION}-cities-changelog");
    assert!(simple::read_topic(&app.broker, &changelog).await.is_err(), "there is no changelog");
    std::fs::remove_dir_all(app.state.path()).unwrap();
    let instance = app.start(topology(&app), |config| config).await;
    assert_eq!(city(&instance, "ada").as_deref(), Some("london"));
    assert_eq!(city(&instance, "bob"), None);
    app.write("cities", &[(Some("ada"), Some("paris"))]).await;
    app.wait_until(|| city(&instance, "ada").as_deref() == Some("paris")).await;
    app.close(instance).await;
    let out = simple::read_topic(&app.broker, "out").await.unwrap();
    assert_eq!(out.len(), records.len() + 1, "what was restored is not forwarded again");
}
